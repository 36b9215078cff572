"""Worker processes: ``python -m gridloom.worker`` runs Python functions for a server."""
