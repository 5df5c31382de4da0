// Package v1 is the small dialect that old clients know: the text, the tools, the
// files, and how it ended.
//
//	text_delta  {type, text, message_id}
//	text_reset  {type, message_id}             forget the text of that message: the model starts it anew
//	tool_start  {type, id, name, args}         args is an object, or a text if the model wrote none
//	tool_end    {type, id, name, ok, result}   result is a text
//	artifact    {type, id, name, media_type, bytes, url}
//	error       {type, code, message, retryable}
//	done        {type, status, run_id, usage?}   once, last: completed, failed or cancelled
package v1

import (
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect is the dialect v1.
type Dialect struct {
	dialect.Quiet // old clients know only their words
	dialect.AsFold
}

// Name is v1.
func (Dialect) Name() string { return "v1" }

// Lost says what is not told: v1 knows text, tools, files and the end.
func (Dialect) Lost() map[event.Type]string {
	return dialect.Untold("v1 tells text, tools, files and the end",
		event.TextDelta, event.MessageDiscarded, event.ToolArgs, event.ToolCompleted, event.ToolFailed, event.ArtifactCompleted,
		event.RunCompleted, event.RunFailed, event.RunCancelled)
}

var encoders = map[event.Type]func(event.Event) []dialect.Message{
	event.TextDelta: textDelta,
	event.MessageDiscarded: dialect.On(func(_ event.Event, d event.MessageDiscardedData) []dialect.Message {
		return begin("text_reset").Text("message_id", d.MessageID).One("text_reset")
	}),
	event.ToolArgs: dialect.On(func(_ event.Event, d event.ToolArgsData) []dialect.Message {
		return begin("tool_start").Text("id", d.CallID).Text("name", d.Name).Raw("args", dialect.Arguments(d.Args)).One("tool_start")
	}),
	event.ToolCompleted: dialect.On(toolEnd),
	event.ToolFailed:    dialect.On(toolEnd),
	event.ArtifactCompleted: dialect.On(func(_ event.Event, d event.ArtifactCompletedData) []dialect.Message {
		return begin("artifact").Text("id", d.ArtifactID).Text("name", d.Name).Text("media_type", d.MediaType).Value("bytes", d.Bytes).Text("url", d.URL).One("artifact")
	}),
	event.RunCompleted: dialect.On(func(e event.Event, d event.RunCompletedData) []dialect.Message {
		return done(e, event.Completed, &d.Usage)
	}),
	event.RunFailed: dialect.On(func(e event.Event, d event.RunFailedData) []dialect.Message {
		why := begin("error").Text("code", string(d.Code)).Text("message", d.Message).Value("retryable", d.Retryable).Message("error")
		return append([]dialect.Message{why}, done(e, event.Failed, d.Usage)...)
	}),
	event.RunCancelled: dialect.On(func(e event.Event, d event.RunCancelledData) []dialect.Message {
		return done(e, event.Cancelled, d.Usage)
	}),
}

// Event tells of an event. Internal ones have no place here, nor has the end of a
// sub-agent's run, which is none of the conversation's.
func (Dialect) Event(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal || e.Agent != "" && e.Type.Terminal() {
		return nil
	}
	if encode := encoders[e.Type]; encode != nil {
		return encode(e)
	}
	return nil
}

func begin(kind string) dialect.Object { return dialect.NewObject(64).Text("type", kind) }

func textDelta(e event.Event) []dialect.Message {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return nil
	}
	return dialect.NewObject(len(e.Data)).Text("type", "text_delta").Raw("text", text).Raw("message_id", id).One("text_delta")
}

func toolEnd(e event.Event, r dialect.Result) []dialect.Message {
	return begin("tool_end").Text("id", r.CallID).Text("name", r.Name).Value("ok", e.Type == event.ToolCompleted).Text("result", r.Text()).One("tool_end")
}

func done(e event.Event, status event.Status, usage *event.Usage) []dialect.Message {
	o := begin("done").Text("status", string(status)).Text("run_id", e.RunID)
	if usage != nil {
		o = o.Value("usage", usage)
	}
	return o.One("done")
}
