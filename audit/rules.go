package audit

// A Rule names a promise that a log keeps.
type Rule string

// The rules. Rules tells what each of them promises.
const (
	FrameForm   Rule = "frame.form"
	FrameHeader Rule = "frame.header"
	FrameChain  Rule = "frame.chain"
	FrameWriter Rule = "frame.writer"
	FrameSize   Rule = "frame.size"
	FramePlace  Rule = "frame.place"

	EventForm Rule = "event.form"
	SeqDense  Rule = "seq.dense"
	FoldFails Rule = "fold"

	SessionFirst   Rule = "session.first"
	ClaimNumber    Rule = "claim.number"
	ClaimOwner     Rule = "claim.owner"
	ClaimRecovered Rule = "claim.recovered"
	RunLeft        Rule = "run.left"

	RunStart      Rule = "run.start"
	RunEnd        Rule = "run.end"
	RunClosed     Rule = "run.closed"
	RunInterleave Rule = "run.interleave"
	RunStatus     Rule = "run.status"
	RunExpiry     Rule = "run.expiry"
	RunResult     Rule = "run.result"
	CommandOnce   Rule = "command.once"

	StepOrder   Rule = "step.order"
	MessagePair Rule = "message.pair"
	MessageText Rule = "message.text"
	MessageHash Rule = "message.sha256"
	MessageSlot Rule = "message.index"
	ReasonPair  Rule = "reasoning.pair"
	ReasonText  Rule = "reasoning.text"

	CallPair     Rule = "tool.pair"
	CallArgs     Rule = "tool.args"
	CallRunning  Rule = "tool.running"
	CallAttempt  Rule = "tool.attempt"
	CallResult   Rule = "tool.result"
	CallOutcome  Rule = "tool.outcome"
	CallApproval Rule = "tool.approval"

	ArtifactPair Rule = "artifact.pair"
	PatchFits    Rule = "patch"

	RequestValid Rule = "request"

	SnapshotFold  Rule = "snapshot"
	InboxAnswered Rule = "inbox.answered"
	TicketMissing Rule = "ticket.missing"
	WaitTimed     Rule = "wait.timed"
	WaitOverdue   Rule = "wait.overdue"
	RunLost       Rule = "run.lost"
	Unreadable    Rule = "unreadable"
	More          Rule = "more"
)

// A Promise is a rule in words.
type Promise struct {
	Rule Rule
	Text string
}

// Promises lists the rules in the order in which they are checked.
var Promises = []Promise{
	{FrameForm, "a frame is lines of JSON, each one event and ended by LF, in valid UTF-8"},
	{FrameHeader, "a frame's Runlog-Seq is its first and last event"},
	{FrameChain, "a frame was appended behind the session's previous frame and no other"},
	{FrameWriter, "frames come from one writer at a time, numbered by it; a new writer begins with its claim and no old one comes back"},
	{FrameSize, "no event and no frame is over its limit"},
	{FramePlace, "a session is in the partition that its id gives"},
	{EventForm, "an event has all it needs, and its data is what its type says"},
	{SeqDense, "events are numbered 1, 2, 3 … and carry their session's id"},
	{FoldFails, "the events fold"},
	{SessionFirst, "session.created is the first event, and only that"},
	{ClaimNumber, "claims are numbered 1, 2, 3 …"},
	{ClaimOwner, "events belong to a claim that was not released, and who releases is who claimed"},
	{ClaimRecovered, "a run that was taken over is recovered before anything else of it, with its attempt one higher"},
	{RunLeft, "nobody lets go of a session with a run that neither ended, nor waits for somebody, nor is handed over"},
	{RunStart, "a run starts once, and before anything else of it but waiting"},
	{RunEnd, "a run ends once, and nothing of it comes afterwards"},
	{RunClosed, "when a run ends nothing of it is open"},
	{RunInterleave, "runs of a session follow one another; those of sub-agents are inside their parent's"},
	{RunStatus, "a run's status follows the machine, and says truly what it was before"},
	{RunExpiry, "a run that waits for somebody says until when"},
	{RunResult, "what a run ends with is what its log shows: its last message, its usage, which counts from nothing up"},
	{CommandOnce, "a command is answered once"},
	{StepOrder, "steps of a run are numbered 1, 2, 3 … and follow one another; none begins while a call is open"},
	{MessagePair, "an answer is opened once, within a step, then closed or taken back"},
	{MessageText, "what an answer closes with is what its deltas said, in their order"},
	{MessageHash, "sha256 of a message is that of its text"},
	{MessageSlot, "index of a message is its place among those that stand"},
	{ReasonPair, "reasoning is opened once and closed"},
	{ReasonText, "what reasoning closes with is what its deltas said"},
	{CallPair, "a tool call is opened once, within its message, and keeps its name and index"},
	{CallArgs, "arguments are what their deltas said, and the same in the result"},
	{CallRunning, "tool.running comes before any effect, after the whole answer, and from the owner who reports"},
	{CallAttempt, "attempts of a call go up by one and share an idempotency key"},
	{CallResult, "a call has one result"},
	{CallOutcome, "a call that may have had its effect says so, and only such a one"},
	{CallApproval, "an approval is asked for once, about these arguments, decided once, and obeyed"},
	{ArtifactPair, "an artifact is begun by a running call, grows, and is completed once"},
	{PatchFits, "patches of state and activities fit what they change"},
	{RequestValid, "any prefix of the log gives a valid request for a model"},
	{SnapshotFold, "the stored snapshot is the fold of the log"},
	{InboxAnswered, "the inbox holds nothing that the log has answered"},
	{TicketMissing, "a session with work has a ticket"},
	{WaitTimed, "a run that waits has a timer that ends its wait"},
	{WaitOverdue, "a wait that is over has ended"},
	{RunLost, "a run that was accepted is in the log or in the inbox"},
	{Unreadable, "what is stored can be read"},
	{More, "findings beyond a session's limit are counted"},
}
