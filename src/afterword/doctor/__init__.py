"""Check whether a server, a library or stored vectors give a model's own vectors."""
