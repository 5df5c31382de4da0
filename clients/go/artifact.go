package runlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// An Artifact is a file that a run made, being downloaded.
type Artifact struct {
	ID        string
	Name      string // as its maker called it; not safe as a path
	MediaType string
	Size      int64 // bytes, -1 if the server did not say
	ETag      string
	// Body gives the bytes. A broken connection is taken up where it broke. The
	// caller closes it.
	Body io.ReadCloser
}

// ErrChanged means that an artifact became another one in mid-download.
var ErrChanged = errors.New("the artifact changed during the download: start again")

// Artifact begins the download of an artifact.
func (c *Client) Artifact(ctx context.Context, id string) (*Artifact, error) {
	p, err := c.pursue()
	if err != nil {
		return nil, err
	}
	d := &download{c: c, ctx: ctx, p: p, path: "/artifacts/" + url.PathEscape(id)}
	resp, err := d.open() //nolint:bodyclose // the caller closes it by Artifact.Body
	if err != nil {
		return nil, fmt.Errorf("get artifact %s: %w", id, err)
	}
	d.body, d.etag = resp.Body, resp.Header.Get("ETag")
	_, disposition, _ := mime.ParseMediaType(resp.Header.Get("Content-Disposition"))
	return &Artifact{
		ID: id, Name: disposition["filename"], MediaType: resp.Header.Get("Content-Type"),
		Size: resp.ContentLength, ETag: d.etag, Body: d,
	}, nil
}

// A download is a body that reconnects.
type download struct {
	c    *Client
	ctx  context.Context
	p    *pursuit
	path string
	etag string
	at   int64 // bytes handed on
	body io.ReadCloser
	err  error // final
}

// Read reads on, from another connection if need be.
func (d *download) Read(b []byte) (int, error) {
	for d.err == nil {
		n, err := d.body.Read(b)
		d.at += int64(n)
		if n > 0 {
			d.p.progressed()
			return n, nil
		}
		if err == io.EOF {
			d.err = io.EOF
		} else if err != nil {
			d.reopen(err)
		}
	}
	return 0, d.err
}

func (d *download) reopen(cause error) {
	d.body.Close()
	if d.err = d.p.again(d.ctx, cause); d.err != nil {
		return
	}
	resp, err := d.open()
	switch {
	case err != nil:
		d.err = err
	case d.at > 0 && !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", d.at)):
		resp.Body.Close()
		d.err = ErrChanged
	default:
		d.body = resp.Body
	}
}

// open asks for the rest of the bytes until an edge gives them.
func (d *download) open() (*http.Response, error) {
	r := request{method: http.MethodGet, path: d.path, accept: "*/*", header: http.Header{}}
	if d.at > 0 {
		r.header.Set("Range", fmt.Sprintf("bytes=%d-", d.at))
		if strings.HasPrefix(d.etag, `"`) {
			r.header.Set("If-Range", d.etag)
		}
	}
	for {
		resp, err := d.c.send(d.ctx, d.p.edge(), r)
		if err == nil {
			d.p.heard()
			return resp, nil
		}
		if err := d.p.again(d.ctx, err); err != nil {
			return nil, err
		}
	}
}

// Close ends the download.
func (d *download) Close() error {
	if d.err == nil {
		d.err = errors.New("artifact body is closed")
	}
	return d.body.Close()
}
