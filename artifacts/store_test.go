package artifacts_test

import (
	"path/filepath"
	"testing"

	"github.com/runlog-dev/runlog/artifacts/artifactstest"
	"github.com/runlog-dev/runlog/internal/testservers"
)

func freshDir(t testing.TB) string { return "dir:" + filepath.Join(t.TempDir(), "made", "for it") }

func TestDir(t *testing.T) { artifactstest.Run(t, freshDir) }

func TestS3(t *testing.T) { artifactstest.Run(t, testservers.S3) }
