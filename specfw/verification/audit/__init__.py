"""The audit: emitted tokens, ours or another engine's, replayed under the target and the chain they claim."""
