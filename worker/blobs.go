package worker

import (
	"context"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/worker/agent"
)

// blobs is the artifact store as one tenant's agents see it.
type blobs struct {
	store  artifacts.Store
	tenant string
}

func (b blobs) Create(ctx context.Context, id, name, mediaType string) (agent.Blob, error) {
	w, err := b.store.Create(ctx, artifacts.Key{Tenant: b.tenant, ID: id}, artifacts.Meta{Name: name, MediaType: mediaType})
	if err != nil {
		return nil, err
	}
	return blob{w}, nil
}

func (b blobs) Open(ctx context.Context, id string) (agent.Reader, error) {
	o, err := b.store.Open(ctx, artifacts.Key{Tenant: b.tenant, ID: id})
	if err != nil {
		return nil, err
	}
	return reader{o}, nil
}

type blob struct{ *artifacts.Writer }

func (b blob) Commit(ctx context.Context) (int64, string, error) {
	info, err := b.Writer.Commit(ctx)
	return info.Bytes, info.SHA256, err
}

type reader struct{ artifacts.Object }

func (r reader) About() (name, mediaType string, bytes int64) {
	i := r.Info()
	return i.Name, i.MediaType, i.Bytes
}
