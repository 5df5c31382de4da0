package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"
)

// dirStore keeps artifacts below one directory:
//
//	blobs/<tenant>/<id>   one file per artifact: content, record, footer
//	tmp/<write>           the same file while it is written
//
// Commit links the finished and synced temporary file to its name. A link
// fails if the name is taken, so it is both the commit and the create-once; a
// file under blobs is complete by construction.
type dirStore struct {
	root *os.Root // nothing below can lead out of it, symbolic links included
	max  int64
}

const (
	blobsDir = "blobs"
	tmpDir   = "tmp"
	// probePrefix begins the name of the file that Ping writes; Sweep takes what a crash leaves.
	probePrefix = "ping-"
)

func openDir(dir string, o Options) (Store, error) {
	if dir == "" {
		return nil, errors.New("artifacts URL: dir: needs a path, as in dir:/var/lib/runlog/artifacts")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open artifacts directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open artifacts directory: %w", err)
	}
	d := &dirStore{root: root, max: o.MaxBytes}
	if err := d.prepare(); err != nil {
		root.Close()
		return nil, fmt.Errorf("prepare artifacts directory %s: %w", dir, err)
	}
	return d, nil
}

func (d *dirStore) prepare() error {
	for _, sub := range []string{blobsDir, tmpDir} {
		if err := d.root.MkdirAll(sub, 0o700); err != nil {
			return err
		}
	}
	if err := d.syncDir("."); err != nil {
		return err
	}
	return d.Ping(context.Background())
}

func blobPath(key Key) string { return path.Join(blobsDir, key.Tenant, key.ID) }

func (d *dirStore) Stat(ctx context.Context, key Key) (Info, error) {
	o, err := d.Open(ctx, key)
	if err != nil {
		return Info{}, err
	}
	return o.Info(), o.Close()
}

func (d *dirStore) Delete(ctx context.Context, key Key) error {
	if err := key.Check(); err != nil {
		return err
	}
	o, err := d.Open(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil {
		o.Close()
	} else if !errors.Is(err, errDamaged) {
		return fmt.Errorf("delete artifact %s: %w", key, err)
	}
	if err := d.root.Remove(blobPath(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete artifact %s: %w", key, dirError(err))
	}
	if err := d.syncDir(path.Dir(blobPath(key))); err != nil {
		return fmt.Errorf("delete artifact %s: %w", key, dirError(err))
	}
	return nil
}

func (d *dirStore) Sweep(ctx context.Context, olderThan time.Duration) (int, error) {
	entries, err := fs.ReadDir(d.root.FS(), tmpDir)
	if err != nil {
		return 0, fmt.Errorf("sweep artifacts: %w", dirError(err))
	}
	removed, limit := 0, time.Now().Add(-olderThan)
	for _, e := range entries {
		if ctx.Err() != nil {
			return removed, fmt.Errorf("sweep artifacts: %w", ctx.Err())
		}
		info, err := e.Info()
		if err != nil || info.ModTime().After(limit) {
			continue // finished meanwhile, or alive
		}
		// A writer that is just committing has its link already or gets ENOENT
		// from it: removing this name never hurts an artifact.
		if d.root.Remove(path.Join(tmpDir, e.Name())) == nil {
			removed++
		}
	}
	return removed, nil
}

// Ping writes a file, for a directory that can only be read is of no use.
func (d *dirStore) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name := path.Join(tmpDir, probePrefix+writeID())
	if err := d.root.WriteFile(name, nil, 0o600); err != nil {
		return fmt.Errorf("ping artifacts directory: %w: %w", ErrUnavailable, err)
	}
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ping artifacts directory: %w: %w", ErrUnavailable, err)
	}
	return nil
}

func (d *dirStore) PresignGet(context.Context, Key, time.Duration) (string, error) {
	return "", fmt.Errorf("presign: a directory has no URLs: %w", errors.ErrUnsupported)
}

func (d *dirStore) Close() error { return d.root.Close() }

// syncDir makes the names in a directory durable.
func (d *dirStore) syncDir(name string) error {
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// dirError marks what passes by itself or by making room.
func dirError(err error) error {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.EROFS} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return err
}
