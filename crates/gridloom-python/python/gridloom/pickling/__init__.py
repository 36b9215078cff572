"""Functions, arguments and results as bytes, and back: the contract between programs and workers."""
