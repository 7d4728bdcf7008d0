"""The page of `trueno report`: what was measured (`facts`), its pictures (`pictures`), and the HTML (`page`)."""
