#!/bin/bash
# Prints a picture (SVG) of the output of make demo: demo-picture.sh PROGRAM. It
# runs the demo, cuts long paths, and omits rows that say the same for other
# kinds.
set -euo pipefail
cd "$(dirname "$0")/.."
hack/demo.sh "$1" | sed -E '
	s/\x1b\[[0-9;]*m//g
	s#/tmp/csi-volmgr-demo\.[A-Za-z0-9]+/root/pods/[^/]+/#…/#
	s#/tmp/csi-volmgr-demo\.[A-Za-z0-9]+#/tmp/demo#
	s/ +$//
	/^kubernetes\.io|^…?[0-9a-f]{8}-|more|created$|kept:|absent$|^0s  (about|all|memory|password|scratch|settings|inline|local|model|own|path|disk):|^web   (about|all|memory|scratch|settings)|^POD    |^Filesystem|get pvc$|^NAME       STATUS|^(data|disk)  +Bound|wait pod web --for=unmounted|^local  |^configmap|^csidriver|^storageclass|^persistentvolume|^secret|^mount ids|^$/d
' | awk '
	{ gsub(/&/, "\\&amp;"); gsub(/</, "\\&lt;"); gsub(/>/, "\\&gt;")
	  if (length($0) > 104) $0 = substr($0, 1, 103) "…"
	  line[n++] = $0 }
	END {
		height = 19 * n + 32
		printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"%d\" viewBox=\"0 0 900 %d\" role=\"img\" aria-label=\"what make demo prints\">\n", height, height
		print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16191d\"/>"
		print "<g font-family=\"ui-monospace,Menlo,Consolas,monospace\" font-size=\"13.5\" fill=\"#d6dae0\">"
		for (i = 0; i < n; i++) {
			style = ""
			if (line[i] ~ /^== /) style = " fill=\"#ffffff\" font-weight=\"bold\""
			if (line[i] ~ /^\$ /) style = " fill=\"#6ac48e\""
			printf "<text x=\"16\" y=\"%d\" xml:space=\"preserve\"%s>%s</text>\n", 19 * i + 30, style, line[i]
		}
		print "</g>\n</svg>"
	}'
