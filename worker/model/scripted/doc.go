// Package scripted is a model that plays a YAML script. It needs no key and no
// network, says the same thing every time, and answers from the real results of
// the tools it called. It derives where it stands from the session alone, so
// that a run that another worker took over goes on at the right place.
//
// # The script
//
//	rate: 40                 # tokens per second; 0 or absent: at once
//	branches:                # the first whose `when` matches the input is played
//	  - when: (?i)\bweather\b      # regular expression (RE2)
//	    steps: [...]
//	steps: [...]             # played when no branch matches
//	loop: true               # the last step is repeated; without it there is an
//	                         # error when the steps are used up
//
// A branch has steps and loop of its own. Each model step of a run plays one
// step: the first plays steps[0], the next, which sees the results of the tools,
// steps[1], and so on. The run ends with the first step that calls no tool.
//
//	steps:
//	  - delay: 300ms         # before the first token
//	    rate: 20             # of this step
//	    reasoning: …         # then
//	    text: …              # then
//	    calls:               # one after the other, all to run in parallel
//	      - name: lookup
//	        args: {key: "{{.Input}}"}         # strings are templates
//	      - name: count_slowly
//	        args: '{"n": {{len .Results}}}'   # or all of it is one, of JSON
//	        if: '{{with .Result "lookup"}}{{if not .Failed}}yes{{end}}{{end}}'
//	                         # the call is left out where this is blank
//	    interleave: true     # the arguments of the calls come mixed
//	    finish: length       # stop, tool_calls, length or content_filter, where
//	                         # it is not what follows from calls
//	    fail:
//	      kind: truncate     # see below
//	      attempts: [1, 2]   # of the step, as it is retried; absent: all
//	      after: 20          # tokens that are said before
//
// Kinds of failure:
//
//	error      an error of the server: code (default model_error), message,
//	           retryable (default true), retry_after
//	stall      silence for the time given by stall (default 60s), then model_timeout
//	truncate   the stream ends without a finish reason: model_truncated
//	refuse     the model does not want to: model_refused, not retryable
//
// # Templates
//
// reasoning, text, name, args and if are templates of text/template over:
//
//	.Input      text of the user's message that began the run
//	.Said       text of the user's last message, which may have come since
//	.Step       1, 2, … within the run
//	.Attempt    of this step: 1, 2, …
//	.Turn       how many messages the user has sent in the session
//	.System     the system prompt
//	.SessionID  .RunID
//	.Tools      names of the tools that are there
//	.Results    what the calls of this run came to, in the order of the calls
//	.Result "n" the last one of the tool n, in this run; .Missing if there is none
//	.Failed     those of .Results that failed
//	.Artifacts  of the session: .ArtifactID .Name .MediaType .Bytes .URL .Status
//
// A result has .Name, .CallID, .Args (decoded), .Text (all its text parts),
// .Structured (decoded), .Failed, .Error (the message), .Code, .Outcome,
// .Truncated, .ArtifactID, .URL, .MediaType and .Bytes (of the file in the
// result, or of the artifact that holds the whole of a cut one), and .Missing.
//
// Functions besides those of text/template:
//
//	cut N text     the first N characters, with … where something is left out
//	json value     as JSON, to put a text into args of the template form
//	upper, lower, trim, lines text
//	seq A B        the numbers A … B
//
// Text is said word by word, as tokens: a word with the space before it, long
// ones and scripts without spaces in pieces. Usage counts these tokens; the input
// is counted as a quarter of its bytes.
package scripted
