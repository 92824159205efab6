"""Reading GGUF files, as llama.cpp writes them; imported only when one is loaded."""
