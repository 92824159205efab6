"""Many runs made one study: records found and read, gathered into rows, pooled, and written as tables."""
