"""A recorded batch as files that a web page runs: the commands (`script`), the files (`folder`), and their runtime."""
