#!/bin/sh
# Writes a manual page for csi-volmgr and for each of its verbs, from what they
# say of themselves with --help: man.sh PROGRAM DIRECTORY
set -eu
bin=$1 dir=$2
mkdir -p "$dir"

page() { # name of the page, its first line, then the command
	name=$1 short=$2
	shift 2
	{
		printf '.TH %s 1\n.SH NAME\n%s \\- %s\n' "$(echo "$name" | tr a-z A-Z)" "$name" "$short"
		# What stands before "Usage:" is the description; each part after it
		# begins with a line that ends in a colon.
		"$bin" "$@" --help | sed 's/\\/\\e/g; s/-/\\-/g' | awk '
			BEGIN { print ".SH DESCRIPTION" }
			/^[A-Z][A-Za-z ]*:$/ && ($1 == "Usage:" || seen) {
				seen = 1; if (open) print ".fi"; open = 1
				sub(/:$/, ""); print ".SH " toupper($0) "\n.nf"; next
			}
			/^$/ && !open { print ".PP"; next }
			{ if ($0 ~ /^[.\x27]/) $0 = "\\&" $0; if (!open && $0 ~ /^ /) print ".br"; print }
			END { if (open) print ".fi" }'
		[ "$name" = csi-volmgr ] || printf '.SH SEE ALSO\n.BR csi\\-volmgr (1)\n'
	} >"$dir/$name.1"
}

verbs=$("$bin" --help | awk '/^Available Commands:/ {on = 1; next} /^$/ {on = 0} on && $1 != "help"')
page csi-volmgr "volumes of pods, without a kubelet"
echo "$verbs" | while read -r verb short; do page "csi-volmgr-$verb" "$short" "$verb"; done
