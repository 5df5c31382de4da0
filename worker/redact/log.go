package redact

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
)

// Handler returns a slog.Handler that takes secrets out of messages and
// attributes before next sees them. Errors and Stringers become their text;
// other values become their JSON, as next would print it, or else their %+v.
func (r *Redactor) Handler(next slog.Handler) slog.Handler {
	return &handler{r: r, next: next}
}

type handler struct {
	r      *Redactor
	next   slog.Handler
	hidden bool // within a group whose name is sensitive
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, rec slog.Record) error {
	clean := slog.NewRecord(rec.Time, rec.Level, h.r.String(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.attr(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attr(a)
	}
	return &handler{h.r, h.next.WithAttrs(clean), h.hidden}
}

func (h *handler) WithGroup(name string) slog.Handler {
	hidden := h.hidden || h.r.rules.Load().sensitive([]byte(name))
	return &handler{h.r, h.next.WithGroup(h.r.String(name)), hidden}
}

func (h *handler) attr(a slog.Attr) slog.Attr {
	if a.Equal(slog.Attr{}) {
		return a // handlers drop it
	}
	a.Value = a.Value.Resolve()
	if h.hidden || h.r.rules.Load().sensitive([]byte(a.Key)) {
		return slog.String(a.Key, Mark)
	}
	return slog.Attr{Key: h.r.String(a.Key), Value: h.value(a.Value)}
}

func (h *handler) value(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(h.r.String(v.String()))
	case slog.KindGroup:
		group := v.Group()
		clean := make([]slog.Attr, len(group))
		for i, a := range group {
			clean[i] = h.attr(a)
		}
		return slog.GroupValue(clean...)
	case slog.KindAny, slog.KindLogValuer:
		return h.any(v.Any())
	}
	return v
}

func (h *handler) any(v any) (out slog.Value) {
	defer func() { // as slog's own handlers do
		if p := recover(); p != nil {
			out = slog.StringValue(h.r.String(fmt.Sprintf("!PANIC: %v", p)))
		}
	}()
	if rv := reflect.ValueOf(v); !rv.IsValid() || rv.Kind() == reflect.Pointer && rv.IsNil() {
		return slog.AnyValue(nil)
	}
	switch v := v.(type) {
	case *slog.Source:
		return slog.AnyValue(v)
	case error:
		return slog.StringValue(h.r.String(v.Error()))
	case fmt.Stringer:
		return slog.StringValue(h.r.String(v.String()))
	case json.RawMessage:
		return h.json(v)
	case []byte:
		return slog.StringValue(h.r.String(string(v)))
	}
	return h.plain(v)
}

// plain is a value that does not say how to print itself.
func (h *handler) plain(v any) slog.Value {
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.String:
		return slog.StringValue(h.r.String(rv.String()))
	case reflect.Bool, reflect.Float32, reflect.Float64:
		return slog.AnyValue(v)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return slog.StringValue(h.r.String(fmt.Sprintf("%+v", v)))
	}
	return h.json(raw)
}

// json keeps JSON as JSON, so that a JSON handler prints it in place.
func (h *handler) json(raw json.RawMessage) slog.Value {
	clean := h.r.JSON(raw)
	var s string
	if len(clean) > 0 && clean[0] == '"' && json.Unmarshal(clean, &s) == nil {
		return slog.StringValue(s)
	}
	if !json.Valid(clean) {
		return slog.StringValue(string(clean))
	}
	return slog.AnyValue(clean)
}
