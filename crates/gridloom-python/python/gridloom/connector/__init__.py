"""Typed functions for the models of a model server: ``python -m gridloom.connector`` writes a module of them."""
