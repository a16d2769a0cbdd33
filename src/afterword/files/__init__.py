"""The user's files: texts are read (`read`), vectors written (`write`), encoders loaded and saved."""
