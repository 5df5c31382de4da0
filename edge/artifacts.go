package edge

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
)

var errNoArtifacts = problem(http.StatusNotImplemented, event.CodeUnsupported, "this edge has no artifact store; set RUNLOG_ARTIFACTS_URL")

// presigned is how long a client may take to follow a redirect to the store.
const presigned = 5 * time.Minute

// redirectArtifact sends the client to the store itself, so that the bytes do
// not pass through the edge.
func (s *Server) redirectArtifact(w http.ResponseWriter, r *http.Request, k artifacts.Key) error {
	url, err := s.Artifacts.PresignGet(r.Context(), k, presigned)
	if errors.Is(err, errors.ErrUnsupported) {
		return unsupported("redirect", "this store has no address of its own; leave redirect out")
	}
	if err != nil {
		return artifactError(err, k.ID)
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", url)
	w.WriteHeader(http.StatusFound)
	return nil
}

// getArtifact serves the bytes, with ranges; GET also matches HEAD.
func (s *Server) getArtifact(w http.ResponseWriter, r *http.Request, c *call) error {
	if s.Artifacts == nil {
		return errNoArtifacts
	}
	id := r.PathValue("artifact")
	o, err := s.Artifacts.Open(r.Context(), artifacts.Key{Tenant: c.who.Tenant, ID: id})
	if err != nil {
		return artifactError(err, id)
	}
	defer o.Close()
	redirect, err := boolParam(r, "redirect", false)
	if err != nil {
		return err
	}
	if redirect {
		return s.redirectArtifact(w, r, o.Info().Key)
	}
	w.Header().Add("Vary", "Authorization, X-Api-Key") // a browser keeps it, and its next user may have another key
	return artifacts.Serve(&retold{ResponseWriter: w, as: func(status int) *Problem {
		if status != http.StatusRequestedRangeNotSatisfiable {
			return nil
		}
		return problem(status, event.CodeBadRequest, "the range is not within the artifact's %d bytes", o.Info().Bytes)
	}}, r, o)
}

func artifactError(err error, id string) error {
	if errors.Is(err, artifacts.ErrNotFound) || errors.Is(err, artifacts.ErrBadKey) {
		return notFound("artifact", id)
	}
	return err
}

// An artifactInfo is what is known of an artifact.
type artifactInfo struct {
	ArtifactID string     `json:"artifact_id"`
	Name       string     `json:"name"`
	MediaType  string     `json:"media_type"`
	Bytes      int64      `json:"bytes"`
	SHA256     string     `json:"sha256"`
	CreatedAt  event.Time `json:"created_at"`
	URL        string     `json:"url"`
}

func infoOf(i artifacts.Info) artifactInfo {
	return artifactInfo{i.ID, i.Name, i.MediaType, i.Bytes, i.SHA256, event.At(i.Created), event.ArtifactPath + url.PathEscape(i.ID)}
}

func (s *Server) statArtifact(w http.ResponseWriter, r *http.Request, c *call) error {
	if s.Artifacts == nil {
		return errNoArtifacts
	}
	id := r.PathValue("artifact")
	info, err := s.Artifacts.Stat(r.Context(), artifacts.Key{Tenant: c.who.Tenant, ID: id})
	if err != nil {
		return artifactError(err, id)
	}
	writeJSON(w, http.StatusOK, infoOf(info))
	return nil
}

// postArtifact stores the body under a new id: name in ?name=, media type in
// Content-Type. 201 with what getArtifact will serve.
func (s *Server) postArtifact(w http.ResponseWriter, r *http.Request, c *call) error {
	if s.Artifacts == nil {
		return errNoArtifacts
	}
	if r.ContentLength > s.opts.MaxUpload {
		return tooLarge(s.opts.MaxUpload)
	}
	if err := checkUpload(w, r); err != nil {
		return err
	}
	key := artifacts.Key{Tenant: c.who.Tenant, ID: event.NewID("art")}
	out, err := s.Artifacts.Create(r.Context(), key, artifacts.Meta{Name: r.URL.Query().Get("name"), MediaType: r.Header.Get("Content-Type")})
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := upload(out, http.MaxBytesReader(w, r.Body, s.opts.MaxUpload)); err != nil {
		return err
	}
	info, err := out.Commit(r.Context())
	if err != nil {
		return err
	}
	c.note("artifact", info.ID)
	w.Header().Set("Location", event.ArtifactPath+info.ID)
	writeJSON(w, http.StatusCreated, infoOf(info))
	return nil
}

// checkUpload refuses what is not the bytes of a file: they come back as they were sent.
func checkUpload(w http.ResponseWriter, r *http.Request) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		return problem(http.StatusUnsupportedMediaType, event.CodeBadRequest,
			"an upload is the file's bytes and no form: send them as the body, their type as Content-Type, and the name as ?name= (curl --data-binary @FILE, not -F)")
	}
	return checkCoding(w, r)
}

func upload(out io.Writer, body io.Reader) error {
	read := &bodyReader{body, nil}
	_, err := io.Copy(out, read)
	var large *http.MaxBytesError
	switch {
	case errors.As(read.err, &large):
		return tooLarge(large.Limit)
	case errors.Is(read.err, os.ErrDeadlineExceeded):
		return errSlowBody
	case read.err != nil:
		return bad("", "the upload broke off: %s", read.err)
	}
	return err
}

// bodyReader remembers whether it was the client that failed.
type bodyReader struct {
	io.Reader
	err error
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

func tooLarge(limit int64) error {
	return problem(http.StatusRequestEntityTooLarge, event.CodeTooLarge, "an artifact has at most %d bytes here", limit)
}
