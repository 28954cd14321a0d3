"""What a notebook does with `%%billow`, as a script for IPython: ipython3 notebook.py"""
from IPython import get_ipython

shell = get_ipython()
shell.run_line_magic("load_ext", "billow")
shell.user_ns["numbers"] = [1, 2, 3]
shell.run_cell_magic("billow", "--gpus 0.5", "total = sum(numbers)\nprint('summed on a GPU')")
print(shell.user_ns["total"])
