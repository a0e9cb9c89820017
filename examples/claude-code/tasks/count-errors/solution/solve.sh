#!/bin/bash
awk '$2 == "ERROR" { count[$3]++ } END { for (module in count) print module, count[module] }' app.log | sort > errors.txt
