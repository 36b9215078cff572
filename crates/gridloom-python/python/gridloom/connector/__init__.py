"""Typed functions for the models or methods of a server: ``python -m gridloom.connector`` writes a module of them."""
