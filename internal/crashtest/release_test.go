package crashtest

// set lays traps for all workers.
func (l *lane) set(traps ...*trap) {
	for _, w := range l.workers {
		w.gate.set(traps...)
	}
}
