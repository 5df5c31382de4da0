package stream

// Holdings are what a hub has in memory for viewers: nothing, when nobody is there and
// the sessions that lingered are forgotten.
type Holdings struct {
	Parked  int   // viewers without a goroutine
	Topics  int   // sessions watched
	Rings   int64 // about bytes of their latest events
	Reading int   // viewers that read the log, or wait for their turn to
	Loading int   // loads of large conversations, or of who waits for a turn to
	Told    int64 // bytes of large conversations that clients have not taken yet
	Replays int64 // about bytes of the log that viewers have read to catch up
	Pinned  int64 // about bytes of large events that clients have not taken yet
}

// Holds returns the hub's holdings.
func (h *Hub) Holds() Holdings {
	return Holdings{Parked: h.Parked(), Topics: h.Topics(), Rings: h.rings.used.Load(),
		Reading: h.pages.count(), Loading: h.loads.turns.count(), Told: h.loads.told.Used(), Replays: h.replays.Used(), Pinned: h.pins.room.Used()}
}
