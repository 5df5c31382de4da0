package agent

import (
	"encoding/json"
	"fmt"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
)

// beside logs what is no part of a message.
func (l *leg) beside(s remote.Saying) error {
	if err := l.settle(); err != nil {
		return err
	}
	e, err := l.event(s)
	if err != nil {
		return err
	}
	return l.run.Journal.Append(e)
}

func (l *leg) event(s remote.Saying) (event.Event, error) {
	if err := l.check(s); err != nil {
		return event.Event{}, err
	}
	switch s := s.(type) {
	case remote.State:
		return l.run.event(event.StateSnapshot, event.StateSnapshotData{State: s.State}), nil
	case remote.StatePatch:
		return l.run.event(event.StateDelta, event.StateDeltaData{Patch: s.Patch}), nil
	case remote.Activity:
		return l.run.event(event.ActivitySnapshot, event.ActivityData{ActivityID: s.ID, Kind: s.Kind, Content: s.Content}), nil
	case remote.ActivityPatch:
		return l.run.event(event.ActivityDelta, event.ActivityDeltaData{ActivityID: s.ID, Patch: s.Patch}), nil
	case remote.Custom:
		return l.run.event(event.Custom, event.CustomData{Name: s.Name, Value: s.Value}), nil
	case remote.Raw:
		return l.run.hidden(true, event.Raw, event.RawData{Source: s.Source, Event: s.Event}), nil
	}
	return event.Event{}, fmt.Errorf("a saying of type %T: %w", s, remote.ErrMisfit)
}

// check refuses what cannot be logged, before anything is made of it.
func (l *leg) check(s remote.Saying) error {
	switch s := s.(type) {
	case remote.State:
		return fits("the state", s.State)
	case remote.StatePatch:
		return patches("the state", l.state(), s.Patch)
	case remote.Activity:
		return fits("the activity", s.Content)
	case remote.ActivityPatch:
		return patches("the activity "+s.ID, l.content(s.ID), s.Patch)
	case remote.Custom:
		if event.ReservedName(s.Name) || s.Name == "" {
			return broken(fmt.Sprintf("a custom event cannot have the name %q", s.Name))
		}
		return fits("the custom event", s.Value)
	case remote.Raw:
		return fits("the event", s.Event)
	}
	return nil
}

func (l *leg) state() (state json.RawMessage) {
	l.run.Journal.Look(func(s *event.Session) { state = s.State })
	return state
}

// content is that of an activity, nil if there is none.
func (l *leg) content(activityID string) (content json.RawMessage) {
	l.run.Journal.Look(func(s *event.Session) {
		for _, a := range s.Activities {
			if a.ActivityID == activityID {
				content = a.Content
			}
		}
	})
	return content
}

func patches(what string, doc, patch json.RawMessage) error {
	next, err := event.Patch(doc, patch)
	if err != nil {
		return fmt.Errorf("a change of %s: %w: %w", what, err, remote.ErrMisfit)
	}
	if err := fits(what, next); err != nil {
		return err
	}
	return fits("a change of "+what, patch)
}

// maxValue bounds what stands in one event as it is.
const maxValue = event.MaxEncoded - 64<<10

func fits(what string, value json.RawMessage) error {
	if len(value) > maxValue {
		return broken(fmt.Sprintf("%s has %d KiB; at most %d KiB fit the log", what, len(value)>>10, maxValue>>10))
	}
	if len(value) == 0 {
		return nil
	}
	if err := event.CheckJSON(value); err != nil {
		return broken(what + " cannot be logged: " + err.Error())
	}
	return nil
}

// broken is a fault of the agent that comes again however often it is asked.
func broken(what string) error {
	return &model.Error{Code: event.CodeModelError, Message: "the agent does not keep to its protocol: " + what}
}
