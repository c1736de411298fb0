"""How rows are prepared before an engine sees them: one file a step, one pipeline.

A step decides from public facts, may measure one statistic that is paid for, and adds row maps.
"""
