package edge

import (
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
)

// inlineFile makes a part of a file that a request names by its URL. Data in the
// request becomes an artifact, the same for the same bytes: a command is too
// small for it, and the log keeps no files.
func (s *Server) inlineFile(ctx context.Context, c *call, at, ref, mediaType, name string) (event.Part, error) {
	part := event.Part{Type: event.PartTypeOf(mediaType), MediaType: mediaType, Name: name, URL: ref}
	switch {
	case strings.HasPrefix(ref, "data:"):
		return s.inlineData(ctx, c, at, part)
	case strings.HasPrefix(ref, event.ArtifactPath):
		part.URL, part.ArtifactID = "", strings.TrimPrefix(ref, event.ArtifactPath)
	}
	return filePart(at, part)
}

func (s *Server) inlineData(ctx context.Context, c *call, at string, part event.Part) (event.Part, error) {
	mediaType, data, err := readDataURL(part.URL)
	if err != nil {
		return part, bad(at+".url", "%s: %s", at, err)
	}
	if part.MediaType == "" {
		part.MediaType, part.Type = mediaType, event.PartTypeOf(mediaType)
	}
	if s.Artifacts == nil {
		return part, errNoArtifacts
	}
	key := artifacts.Key{Tenant: c.who.Tenant, ID: derivedID("art", part.MediaType, part.Name, string(data))}
	out, err := s.Artifacts.Create(ctx, key, artifacts.Meta{Name: part.Name, MediaType: part.MediaType})
	if err == nil {
		defer out.Abort()
		if _, err = out.Write(data); err == nil {
			_, err = out.Commit(ctx)
		}
	}
	if err != nil && !errors.Is(err, artifacts.ErrExists) {
		return part, err
	}
	return event.ArtifactPart(key.ID, part.Name, part.MediaType, int64(len(data))), nil
}

// readDataURL takes data:TYPE;base64,… apart (RFC 2397).
func readDataURL(s string) (mediaType string, data []byte, err error) {
	head, body, ok := strings.Cut(strings.TrimPrefix(s, "data:"), ",")
	if !ok {
		return "", nil, errors.New("the data URL has no comma")
	}
	mediaType, inBase64 := strings.CutSuffix(head, ";base64")
	if mediaType == "" {
		mediaType = "text/plain"
	}
	if inBase64 {
		data, err = base64.StdEncoding.DecodeString(body)
	} else {
		var text string
		text, err = url.PathUnescape(body)
		data = []byte(text)
	}
	if err != nil {
		return "", nil, errors.New("the data URL is malformed")
	}
	return mediaType, data, nil
}
