"""What row programs are made of in PTX: elements, how exact they are, folds, and the printer."""
