// Package recorder reads the log once for everyone and keeps the catalog's
// projection of it current. Runs do not wait for it: while the catalog is away
// the log grows on, and the recorder catches up afterwards.
//
//	LOG_<p> ──Frames──> pump ──frames with what is projected──> batch ──ApplyAt──> catalog
//	                                                                     rows + position, one transaction
//
// # Several at once
//
// A recorder runs in every worker process. What keeps them from harming each
// other is not a lock but the position: a batch says from where to where it
// moves it, and the catalog takes the batch only if the position is there, in
// the transaction that writes the rows. So a recorder that was paused, cut off
// or outrun writes nothing, whatever it believes; it reads the position again
// and goes on from there. Dropping the projection is the same case: the position
// becomes 0.
//
// What is left is waste, since ten workers would read the whole log ten times.
// Therefore a recorder reads a partition only while it has the partition's
// lease, which is two columns beside the position. The catalog is the right
// place for it: who cannot reach the catalog cannot record either, and a lease
// that two hold for a moment, because clocks differ, costs a batch and no more.
package recorder
