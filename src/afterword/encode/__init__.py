"""From texts and a method to vectors: batches of bounded size, one forward each, `embedding = weights @ states`."""
