# $0 is the cluster's folder. Waits until the process that holds the other end of standard input is
# gone, then ends the nodes that are still there and removes the folder.
trap '' HUP INT TERM
while read -r _; do :; done
for file in "$0"/n*/pid; do
	[ -r "$file" ] || continue
	pid=$(cat "$file")
	# An id can belong to another process by now: ours carries its folder in its command line.
	if [ -r "/proc/$pid/cmdline" ]; then
		command=$(tr '\0' ' ' <"/proc/$pid/cmdline")
	else
		command=$(ps -o command= -p "$pid" 2>/dev/null)
	fi
	case $command in
	*"$0"/n*/server.properties*) kill -9 "$pid" ;;
	esac
done
# A process that is just being killed may still make a file.
for try in 1 2 3 4 5; do
	rm -rf "$0" 2>/dev/null && break
	sleep 0.2
done
