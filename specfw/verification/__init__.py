"""Proofs by enumeration, and what they enumerate."""
