"""sample: a token of each row of logits, drawn on the device; only the token crosses to the host.

fixed    e^(gap / temperature) as a 64-bit fixed-point number, in 32-bit integers, and its constants
draw     the text: a workgroup searches a row by digits of its keys
kernel   sample in the table
"""
