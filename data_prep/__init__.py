"""From data sets to label tables: readers, reference answers, grid labelling, selection of training examples."""
