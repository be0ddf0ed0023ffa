package tinker_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/internal/serve/tinker"
)

// Records of a version that kept them in files, in the form in which it wrote them.
const (
	earlierRun        = `{"training_run_id":"7751fab15bd2c329:train:0","owner":"ann","base_model":"tiny","adapter":` + earlierAdapter + `,"user_metadata":{},"created":"2026-11-27T18:41:26.185344035Z","last_request_time":"2026-11-27T18:41:26.185344035Z","ended":false}`
	earlierCheckpoint = `{"training_run_id":"7751fab15bd2c329:train:0","kind":"weights","name":"a","time":"2026-11-27T18:41:26.189049744Z","expires_at":null,"size_bytes":115501,"user_metadata":{"k":"v"},"base_model":"tiny","adapter":` + earlierAdapter + `,"optimizer":true}`
	earlierAdapter    = `{"Rank":3,"Alpha":32,"Seed":0,"Attention":true,"MLP":true,"Unembed":true,"MaxTokens":0,"Name":"tiny"}`
)

// TestEarlierRuns: runs and checkpoints of an earlier version are there, for their owner alone, can
// be replaced and removed, and are read once. What cannot be read is left alone.
func TestEarlierRuns(t *testing.T) {
	dir := t.TempDir()
	const id = "7751fab15bd2c329:train:0"
	runs := filepath.Join(dir, "runs")
	folder := filepath.Join(runs, "7751fab15bd2c329.train.0")
	for path, text := range map[string]string{"run.json": earlierRun, "weights/a/checkpoint.json": earlierCheckpoint, "weights/broken/checkpoint.json": "{", "../stranger/run.json": "{}"} {
		path = filepath.Join(folder, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	require.NoError(t, os.CopyFS(filepath.Join(folder, "weights/a/adapter"), os.DirFS(adapter)))
	p := open(t, func(o *tinker.Options) { o.Dir, o.Keys = dir, []string{"ann tml-x", "bob tml-y"} })
	p.logged("was being trained when the server before this one ended")
	p.logged("broken")
	p.logged("stranger")
	check := func() {
		t.Helper()
		c := p.must("training_runs/" + id + "/checkpoints")["checkpoints"].([]any)
		require.Len(t, c, 1)
		assert.Equal(t, object{
			"checkpoint_id": "weights/a", "checkpoint_type": "training", "time": "2026-11-27T18:41:26.189049744Z", "tinker_path": "tinker://" + id + "/weights/a",
			"size_bytes": 115501.0, "public": false, "user_metadata": object{"k": "v"}, "expires_at": nil,
		}, c[0])
		v := p.do("load_weights", object{"session_id": p.session(), "model_seq_id": 0, "path": "tinker://" + id + "/weights/a", "optimizer": true})
		assert.Equal(t, "tinker://"+id+"/weights/a", v["path"], v)
	}
	check()
	p.Close()
	require.NoError(t, os.Remove(filepath.Join(folder, "run.json")))
	p.start()
	check()
	assert.FileExists(t, filepath.Join(folder, "weights/broken/checkpoint.json"))
	p.Close()
	p.options.Keys = []string{"ann tml-y", "bob tml-x"}
	p.start()
	code, _ := p.get("training_runs/" + id)
	assert.Equal(t, http.StatusNotFound, code)
	p.Close()
	p.options.Keys = []string{"ann tml-x"}
	p.start()
	assert.Equal(t, http.StatusNoContent, p.send("DELETE", "training_runs/"+id+"/checkpoints/weights/a", "", nil).Code)
	code, _ = p.get("training_runs/" + id)
	assert.Equal(t, http.StatusNotFound, code, "it was the last one")
	assert.NoDirExists(t, folder)
}

// TestReplaceIsAtomic: a checkpoint that was written and has no record, as after a crash, does not
// replace that of its name, and is removed.
func TestReplaceIsAtomic(t *testing.T) {
	p := open(t)
	m := p.model(p.session(), 0, 3)
	saved := p.do("save_weights", object{"model_id": m, "seq_id": 1, "path": "a"})["path"]
	again := p.do("save_weights", object{"model_id": m, "seq_id": 2, "path": "a", "overwrite": true})["path"]
	require.Equal(t, saved, again)
	found, err := filepath.Glob(filepath.Join(p.options.Dir, "runs", "*", "weights", "*"))
	require.NoError(t, err)
	require.Len(t, found, 1, "the first one is removed")
	before := p.must("checkpoints")
	p.crash()
	found, err = filepath.Glob(filepath.Join(p.options.Dir, "runs", "*", "weights", "*"))
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(found[0]+"1", os.DirFS(found[0])))
	p.start()
	assert.NoDirExists(t, found[0]+"1")
	assert.Equal(t, before, p.must("checkpoints"))
	v := p.do("load_weights", object{"session_id": p.session(), "model_seq_id": 0, "path": saved, "optimizer": true})
	assert.Equal(t, saved, v["path"], v)
}

// TestFullDisk: nothing is saved on a disk that is nearly full, and the client hears why.
func TestFullDisk(t *testing.T) {
	p := open(t, func(o *tinker.Options) { o.KeepFree = 1 << 60 })
	m := p.model(p.session(), 0, 3)
	v := p.do("save_weights", object{"model_id": m, "seq_id": 1, "path": "a"})
	assert.Equal(t, "user", v["category"])
	assert.Contains(t, v["error"], store.ErrNearlyFull.Error())
	assert.Empty(t, p.must("checkpoints")["checkpoints"])
}
