"""Files of texts in, files of vectors out, a window of rows at a time; rows that have no vector are listed."""
