package artifacts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Sweep aborts stale multipart uploads, each with the seal that a crash between
// seal and commit left, and removes stale probes. Its cost follows what is
// abandoned or in progress, not what is stored. Ages compare this machine's
// clock with the server's.
func (s *s3Store) Sweep(ctx context.Context, olderThan time.Duration) (int, error) {
	limit := time.Now().Add(-olderThan)
	uploads, errU := s.sweepUploads(ctx, limit)
	probes, errP := s.sweepProbes(ctx, limit)
	if err := errors.Join(errU, errP); err != nil {
		return uploads + probes, fmt.Errorf("sweep artifacts: %w", err)
	}
	return uploads + probes, nil
}

func (s *s3Store) sweepUploads(ctx context.Context, limit time.Time) (int, error) {
	removed, keyMark, idMark := 0, "", ""
	var failed error
	for {
		page, err := s.api.ListMultipartUploads(ctx, s.bucket, s.prefix, keyMark, idMark, "", 1000)
		if err != nil {
			return removed, errors.Join(failed, s3Error(ctx, err))
		}
		for _, up := range page.Uploads {
			ok, err := s.sweepUpload(ctx, up, limit)
			if ok {
				removed++
			}
			failed = errors.Join(failed, err)
		}
		if !page.IsTruncated || ctx.Err() != nil {
			return removed, failed
		}
		keyMark, idMark = page.NextKeyMarker, page.NextUploadIDMarker
	}
}

// sweepUpload aborts one upload if it is ours and stale.
func (s *s3Store) sweepUpload(ctx context.Context, up minio.ObjectMultipartInfo, limit time.Time) (bool, error) {
	name, isBlob := strings.CutPrefix(up.Key, s.prefix+blobsPrefix)
	if !isBlob && !strings.HasPrefix(up.Key, s.prefix+probeDir) {
		return false, nil
	}
	if stale, err := s.stale(ctx, up, limit); !stale || err != nil {
		return false, err
	}
	err := (&s3Upload{store: s, name: up.Key, id: up.UploadID}).abort(ctx)
	if errors.Is(err, ErrAbandoned) || errors.Is(err, ErrNotFound) {
		return false, nil // committed, or swept by another node
	}
	if err != nil {
		return false, fmt.Errorf("abort upload of %s: %w", up.Key, err)
	}
	if tenant, id, ok := strings.Cut(name, "/"); isBlob && ok {
		err = s.sweepSeals(ctx, Key{tenant, id}, limit)
	}
	return true, err
}

// stale tells whether an upload began and got its last part before limit.
func (s *s3Store) stale(ctx context.Context, up minio.ObjectMultipartInfo, limit time.Time) (bool, error) {
	if up.Initiated.After(limit) {
		return false, nil
	}
	for mark := 0; ; {
		page, err := s.api.ListObjectParts(ctx, s.bucket, up.Key, up.UploadID, mark, 1000)
		if err = s3Error(ctx, err); errors.Is(err, ErrAbandoned) || errors.Is(err, ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("list parts of %s: %w", up.Key, err)
		}
		for _, p := range page.ObjectParts {
			if p.LastModified.After(limit) {
				return false, nil
			}
		}
		if !page.IsTruncated {
			return true, nil
		}
		mark = page.NextPartNumberMarker
	}
}

// sweepSeals removes the seals under key that belong to no artifact. A seal
// younger than limit may be of a commit that is under way.
func (s *s3Store) sweepSeals(ctx context.Context, key Key, limit time.Time) error {
	there, _, err := s.head(ctx, key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	prefix := s.seals(key)
	for obj, err := range s.list(ctx, prefix) {
		if err != nil {
			return err
		}
		if obj.LastModified.After(limit) || obj.Key == prefix+there.Write {
			continue
		}
		if err := s.remove(ctx, obj.Key); err != nil {
			return err
		}
	}
	return nil
}

func (s *s3Store) sweepProbes(ctx context.Context, limit time.Time) (int, error) {
	removed := 0
	for obj, err := range s.list(ctx, s.prefix+probeDir) {
		if err != nil {
			return removed, err
		}
		if obj.LastModified.After(limit) {
			continue
		}
		if err := s.remove(ctx, obj.Key); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// list yields the objects under prefix, or one error at the end.
func (s *s3Store) list(ctx context.Context, prefix string) func(yield func(minio.ObjectInfo, error) bool) {
	return func(yield func(minio.ObjectInfo, error) bool) {
		for obj := range s.api.Client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
			if !yield(obj, s3Error(ctx, obj.Err)) {
				return
			}
		}
	}
}
