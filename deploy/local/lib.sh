# What up and down share: how a process is recorded, and stopped again.
# A record is $state/pids/NN-NAME with "pid start-time": the start time tells the process from a later one with its pid.

# began PID: when the process started, in whatever unit the system gives; empty if there is none.
began() {
	if [ -r "/proc/$1/stat" ]; then
		sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
	elif [ ! -d /proc/self ]; then
		ps -o lstart= -p "$1" 2>/dev/null | tr -d ' ' || true
	fi
}

# running RECORD: is the recorded process still there (a zombie is not)?
running() {
	local pid start
	read -r pid start <"$1" || return 1
	[ -n "$start" ] && [ "$(began "$pid")" = "$start" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null
}

# finish RECORD SIGNAL: sends the signal and waits; after 30 s it kills.
finish() {
	local pid start i
	if running "$1"; then
		read -r pid start <"$1"
		kill -s "$2" "$pid" 2>/dev/null || true
		for ((i = 0; i < 300; i++)); do
			running "$1" || break
			sleep 0.1
		done
		if running "$1"; then
			echo "killing ${1##*/}: still running 30 s after $2" >&2
			kill -s KILL "$pid" 2>/dev/null || true
		fi
	fi
	rm -f "$1"
}

# finish_all STATE: stops everything, the last started first.
finish_all() {
	local record sig
	for record in $(ls -r "$1"/pids/* 2>/dev/null); do
		sig=TERM
		[[ $record != *-postgres ]] || sig=INT # breaks connections off instead of waiting for them
		finish "$record" "$sig"
	done
}
