// Package agent runs one agent: model step, tool step, model step … until the
// run has its terminal event.
//
//	        ┌────────────── fold of the log ──────────────┐
//	        ▼                                             │
//	open tool calls? ──yes──> tool step ──events──> Journal (append, fold)
//	        │no                                           ▲
//	        ▼                                             │
//	 limits, model step ─────────events───────────────────┘
//
// What comes next is read from the fold alone, never from memory, so a run that
// another worker began goes on the same way as one that was never interrupted.
package agent
