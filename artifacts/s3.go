package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/minio/minio-go/v7"
)

// s3Store keeps artifacts in a bucket:
//
//	<prefix>blobs/<tenant>/<id>         the bytes; the record is in the object's metadata
//	<prefix>seals/<tenant>/<id>/<write> the full record of an artifact of several parts
//	<prefix>probe/<random>              see probe
//
// What fits one part is one PUT, the record with its hash in the metadata. A
// longer artifact is a multipart upload straight to its name; its metadata is
// due before its hash is known, so the hash goes into a seal, written before
// the upload is completed and found by the write's random id. Either way one
// conditional request (If-None-Match: *) is the commit, and S3 itself holds
// what is not committed apart: there are no orphans to be told from artifacts.
//
// A bucket that keeps versions keeps what Delete deletes, too; give it a
// lifecycle rule for old versions.
type s3Store struct {
	api    *minio.Core
	bucket string
	prefix string // "" or ends in a slash
	opts   Options
	idle   func() // closes idle connections
}

const (
	blobsPrefix = "blobs/"
	sealsPrefix = "seals/"
	probeDir    = "probe/"
	recordMeta  = "Runlog" // sent as X-Amz-Meta-Runlog
	// cleanupTime bounds what has to be done after the caller's context ended.
	cleanupTime = 10 * time.Second
)

func (s *s3Store) blob(key Key) string { return s.prefix + blobsPrefix + key.String() }

func (s *s3Store) seal(key Key, write string) string { return s.seals(key) + write }

// seals is the common prefix of all seals under key.
func (s *s3Store) seals(key Key) string { return s.prefix + sealsPrefix + key.String() + "/" }

func (s *s3Store) Stat(ctx context.Context, key Key) (Info, error) {
	rec, _, err := s.stat(ctx, key)
	if err != nil {
		return Info{}, fmt.Errorf("stat artifact %s: %w", key, err)
	}
	return rec.info(), nil
}

// stat returns the sealed record under key and the ETag of its bytes.
func (s *s3Store) stat(ctx context.Context, key Key) (record, string, error) {
	if err := key.Check(); err != nil {
		return record{}, "", err
	}
	there, etag, err := s.head(ctx, key)
	if err != nil || there.SHA256 != "" {
		return there, etag, err
	}
	rec, err := s.readSeal(ctx, key, there.Write)
	if err == nil && rec.Bytes != there.Bytes {
		err = fmt.Errorf("object %s: %w", s.blob(key), errDamaged)
	}
	return rec, etag, err
}

// head returns the record as the object's metadata has it, sealed or not.
func (s *s3Store) head(ctx context.Context, key Key) (record, string, error) {
	obj, err := s.api.StatObject(ctx, s.bucket, s.blob(key), minio.StatObjectOptions{})
	if err != nil {
		return record{}, "", s3Error(ctx, err)
	}
	rec, err := unpackMeta(obj.UserMetadata[recordMeta])
	if err != nil {
		return rec, "", fmt.Errorf("object %s: %w", s.blob(key), errDamaged)
	}
	if rec.key() != key {
		return rec, "", ErrNotFound // the server folded two names into one
	}
	if rec.SHA256 == "" {
		rec.Bytes = obj.Size
	}
	if rec.Bytes != obj.Size {
		return rec, "", fmt.Errorf("object %s: %w", s.blob(key), errDamaged)
	}
	return rec, obj.ETag, nil
}

// readSeal fetches the full record of an artifact of several parts. A missing
// seal is a deletion that is under way or was interrupted.
func (s *s3Store) readSeal(ctx context.Context, key Key, write string) (record, error) {
	body, _, _, err := s.api.GetObject(ctx, s.bucket, s.seal(key, write), minio.GetObjectOptions{})
	if err != nil {
		return record{}, s3Error(ctx, err)
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxRecord))
	if err != nil {
		return record{}, s3Error(ctx, err)
	}
	rec, err := decodeRecord(b)
	if err != nil || rec.key() != key || rec.Write != write {
		return record{}, fmt.Errorf("seal %s: %w", s.seal(key, write), errDamaged)
	}
	return rec, nil
}

// Delete takes the seal first: what remains if it stops halfway is an object
// under the artifact's own name, which reads as absent and which the next
// Delete removes.
func (s *s3Store) Delete(ctx context.Context, key Key) error {
	if err := key.Check(); err != nil {
		return err
	}
	rec, _, err := s.head(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if errors.Is(err, errDamaged) {
		err = nil // without a record there is no seal to find, but it can go
	} else if err == nil && rec.SHA256 == "" {
		err = s.remove(ctx, s.seal(key, rec.Write))
	}
	if err == nil {
		err = s.remove(ctx, s.blob(key))
	}
	if err != nil {
		return fmt.Errorf("delete artifact %s: %w", key, err)
	}
	return nil
}

// remove deletes one object; S3 does not mind if it is gone.
func (s *s3Store) remove(ctx context.Context, name string) error {
	err := s3Error(ctx, s.api.RemoveObject(ctx, s.bucket, name, minio.RemoveObjectOptions{}))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (s *s3Store) Ping(ctx context.Context) error {
	ok, err := s.api.BucketExists(ctx, s.bucket)
	if err != nil {
		return fmt.Errorf("ping artifacts bucket %s: %w", s.bucket, s3Error(ctx, err))
	}
	if !ok {
		return fmt.Errorf("ping artifacts: %w: bucket %s is gone", ErrUnavailable, s.bucket)
	}
	return nil
}

func (s *s3Store) PresignGet(ctx context.Context, key Key, ttl time.Duration) (string, error) {
	if ttl < time.Second || ttl > 7*24*time.Hour {
		return "", fmt.Errorf("presign artifact %s: ttl %s is not within 1s and 168h", key, ttl)
	}
	rec, _, err := s.stat(ctx, key)
	if err != nil {
		return "", fmt.Errorf("presign artifact %s: %w", key, err)
	}
	mediaType, disposition := presentation(rec.info().Meta)
	u, err := s.api.PresignedGetObject(ctx, s.bucket, s.blob(key), ttl, url.Values{
		"response-content-type":        {mediaType},
		"response-content-disposition": {disposition},
		"response-cache-control":       {cacheControl},
	})
	if err != nil {
		return "", fmt.Errorf("presign artifact %s for %s: %w", key, ttl, s3Error(ctx, err))
	}
	return u.String(), nil
}

func (s *s3Store) Close() error {
	s.idle()
	return nil
}

// put writes one object of known content, only if its name is free when once
// is set. The server checks the content against sum.
func (s *s3Store) put(ctx context.Context, name string, body []byte, sum string, o minio.PutObjectOptions, once bool) error {
	if once {
		o.SetMatchETagExcept("*")
	}
	_, err := s.api.PutObject(ctx, s.bucket, name, bytes.NewReader(body), int64(len(body)), "", sum, o)
	return s3Error(ctx, err)
}

// s3Error sorts the client's errors into those of this package. Access denied
// and the like stay as they are: waiting does not help.
func s3Error(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		if errors.Is(cause, context.DeadlineExceeded) {
			return fmt.Errorf("%w: %w", ErrUnavailable, cause)
		}
		return cause
	}
	resp, answered := errors.AsType[minio.ErrorResponse](err)
	switch {
	case !answered: // no answer at all, or none that could be read
		return fmt.Errorf("%w: %w", ErrUnavailable, redactURL(err))
	case resp.Code == minio.NoSuchBucket:
		return fmt.Errorf("%w: bucket %s is gone", ErrUnavailable, resp.BucketName)
	case resp.Code == minio.NoSuchUpload, resp.Code == minio.InvalidPart: // parts vanish only by an abort
		return ErrAbandoned
	case resp.StatusCode == http.StatusNotFound:
		return ErrNotFound
	case resp.StatusCode == http.StatusPreconditionFailed:
		return errPrecondition
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests,
		resp.StatusCode == http.StatusRequestTimeout, resp.StatusCode == http.StatusConflict:
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, resp.Code, err)
	}
	return fmt.Errorf("%s (check the credentials, region and rights on the bucket): %w", resp.Code, err)
}

var errPrecondition = errors.New("precondition failed")

// redactURL drops the request's URL, which would show the layout and, if it
// was presigned, a signature.
func redactURL(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}
