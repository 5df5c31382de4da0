package artifacts

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// The file of an artifact is its content, the JSON record, and a footer of 12
// bytes: the record's length (big endian) and a magic string. One file needs
// one sync and one link, and has no second half to lose.
const (
	footerMagic = "runlog/1"
	footerBytes = 4 + len(footerMagic)
	maxRecord   = 64 << 10
)

func (d *dirStore) Create(ctx context.Context, key Key, meta Meta) (*Writer, error) {
	rec, err := newRecord(ctx, key, meta)
	if err != nil {
		return nil, err
	}
	s := &dirSink{dir: d, tmp: path.Join(tmpDir, rec.Write)}
	s.file, err = d.root.OpenFile(s.tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create artifact %s: %w", key, dirError(err))
	}
	return newWriter(ctx, rec, s, d.max), nil
}

// dirSink writes one temporary file and links it.
type dirSink struct {
	dir    *dirStore
	tmp    string
	file   *os.File
	sealed bool // record and footer are written and synced
}

func (s *dirSink) write(ctx context.Context, p []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.file.Write(p)
	return dirError(err)
}

func (s *dirSink) commit(_ context.Context, rec record) error {
	if !s.sealed {
		if err := s.seal(rec); err != nil {
			return err
		}
		s.sealed = true
	}
	if err := s.link(rec.key()); err != nil {
		return err
	}
	s.file.Close()
	s.dir.root.Remove(s.tmp) // a second name, no second copy; else Sweep's
	return nil
}

// seal ends the file. WriteAt keeps it repeatable after a full disk.
func (s *dirSink) seal(rec record) error {
	b := rec.encode()
	n := uint32(len(b))
	b = binary.BigEndian.AppendUint32(b, n)
	b = append(b, footerMagic...)
	if _, err := s.file.WriteAt(b, rec.Bytes); err != nil {
		return dirError(err)
	}
	// Final, whatever the cause: after a failed sync the kernel may forget the
	// pages it could not write, and a second sync would then say all is well.
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

func (s *dirSink) link(key Key) error {
	name := blobPath(key)
	tenant := path.Dir(name)
	if err := s.dir.makeTenant(tenant); err != nil {
		return err
	}
	err := s.dir.root.Link(s.tmp, name)
	switch {
	case errors.Is(err, fs.ErrExist):
		if !s.isOurs(name) {
			return ErrExists
		}
	case errors.Is(err, fs.ErrNotExist):
		return ErrAbandoned
	case err != nil:
		return dirError(err)
	}
	if err := s.dir.syncDir(tenant); err != nil {
		s.dir.root.Remove(name)
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// isOurs tells whether an earlier commit of this write got as far as its link.
func (s *dirSink) isOurs(name string) bool {
	there, err := s.dir.root.Lstat(name)
	if err != nil {
		return false
	}
	ours, err := s.file.Stat()
	return err == nil && os.SameFile(there, ours)
}

// makeTenant creates the tenant's directory, durable before the first link in it.
func (d *dirStore) makeTenant(name string) error {
	err := d.root.Mkdir(name, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return dirError(err)
	}
	if err == nil {
		return dirError(d.syncDir(blobsDir))
	}
	return nil
}

func (s *dirSink) abort() {
	s.file.Close()
	s.dir.root.Remove(s.tmp)
}

func (d *dirStore) Open(ctx context.Context, key Key) (Object, error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open artifact %s: %w", key, err)
	}
	f, err := d.root.Open(blobPath(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open artifact %s: %w", key, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open artifact %s: %w", key, dirError(err))
	}
	rec, err := readFooter(f)
	if err == nil && rec.key() != key {
		err = ErrNotFound // the file system folded two names into one
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open artifact %s: %w", key, err)
	}
	return &dirObject{io.NewSectionReader(f, 0, rec.Bytes), f, rec.info(), ctx}, nil
}

// readFooter reads the record at the end of an artifact's file.
func readFooter(f *os.File) (record, error) {
	st, err := f.Stat()
	if err != nil {
		return record{}, dirError(err)
	}
	end := st.Size() - int64(footerBytes)
	foot := make([]byte, footerBytes)
	if end < 0 || !st.Mode().IsRegular() {
		return record{}, errDamaged
	}
	if _, err := f.ReadAt(foot, end); err != nil {
		return record{}, dirError(err)
	}
	n := int64(binary.BigEndian.Uint32(foot))
	if string(foot[4:]) != footerMagic || n > min(end, maxRecord) {
		return record{}, errDamaged
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, end-n); err != nil {
		return record{}, dirError(err)
	}
	rec, err := decodeRecord(b)
	if err != nil || rec.Bytes != end-n {
		return record{}, errDamaged
	}
	return rec, nil
}

// dirObject is the content part of an artifact's file.
type dirObject struct {
	*io.SectionReader
	file *os.File
	info Info
	ctx  context.Context
}

func (o *dirObject) Info() Info { return o.info }

func (o *dirObject) Read(p []byte) (int, error) {
	if err := o.ctx.Err(); err != nil {
		return 0, err
	}
	return o.SectionReader.Read(p)
}

func (o *dirObject) Close() error { return o.file.Close() }
