"""The user's files: texts are read (`read`), encoders loaded and saved."""
