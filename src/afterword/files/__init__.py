"""Files of the user's: texts in, vectors out. Reading is in `read`, writing in `write`."""
