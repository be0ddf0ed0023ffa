package deploy_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/cmd/lorafuse/cli"
	"github.com/lorafuse/lorafuse/train/config"
)

// sshPath is the folder of the keys of users and hosts in the image.
const sshPath = "/var/lib/lorafuse/.ssh"

// training is a form of a training run, with the JobSet that runs it.
type training struct {
	built
	jobs any
}

// kubeflow reads the TrainingRuntime and, apart from it, the TrainJob: Trainer refuses a
// TrainJob before its runtime exists, and kubectl creates it first.
func kubeflow(t testing.TB) built {
	require.NotContains(t, build(t, "train/kubeflow").objects, "TrainJob")
	return build(t, "train/kubeflow", "trainjob.yaml")
}

func trainings(t testing.TB) map[string]training {
	k, jobset := kubeflow(t), build(t, "train/jobset")
	return map[string]training{
		"kubeflow": {k, at(t, k.objects["TrainingRuntime"], "spec", "template", "spec")},
		"jobset":   {jobset, at(t, jobset.objects["JobSet"], "spec")},
	}
}

// Names in one part of a training run are those of another.
func TestTrainingParts(t *testing.T) {
	for name, run := range trainings(t) {
		node, launcher := at(t, run.jobs, "replicatedJobs", 0), at(t, run.jobs, "replicatedJobs", 1)
		assert.Equal(t, "node", at(t, node, "name"))
		assert.Equal(t, "launcher", at(t, launcher, "name"))
		assert.Equal(t, []any{map[string]any{"name": "node", "status": "Ready"}}, at(t, launcher, "dependsOn"))
		for _, targets := range []any{at(t, run.jobs, "successPolicy", "targetReplicatedJobs"), at(t, run.jobs, "failurePolicy", "rules", 0, "targetReplicatedJobs")} {
			assert.Equal(t, []any{"launcher"}, targets)
		}
		exit := at(t, launcher, "template", "spec", "podFailurePolicy", "rules", 0, "onExitCodes")
		assert.Equal(t, []any{cli.ExitUsage}, at(t, exit, "values"))

		for _, job := range []any{node, launcher} {
			pod := at(t, job, "template", "spec", "template", "spec")
			c := at(t, pod, "containers", 0)
			assert.Equal(t, "node", at(t, c, "name"), "Trainer knows the container by this name")
			assert.Equal(t, at(t, c, "name"), at(t, exit, "containerName"))
			volumes, mounts := map[string]bool{}, map[string]string{}
			for _, v := range at(t, pod, "volumes").([]any) {
				volumes[at(t, v, "name").(string)] = true
			}
			for _, m := range at(t, c, "volumeMounts").([]any) {
				assert.True(t, volumes[at(t, m, "name").(string)], m)
				mounts[at(t, m, "mountPath").(string)] = at(t, m, "name").(string)
			}
			want := map[string]string{"/config": "config", "/models": "data", "/data": "data", "/tmp": "tmp", "/dev/shm": "shm"}
			if name == "jobset" {
				want[sshPath] = "ssh"
			}
			assert.Equal(t, want, mounts)
			assert.Equal(t, at(t, run.objects["PersistentVolumeClaim"], "metadata", "name"), at(t, volume(t, pod, "data"), "persistentVolumeClaim", "claimName"))
			assert.Contains(t, run.settings, at(t, volume(t, pod, "config"), "configMap", "name"))

			assert.Equal(t, map[string]any{
				"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
				"seccompProfile": map[string]any{"type": "RuntimeDefault"},
			}, at(t, pod, "securityContext"))
			assert.Equal(t, map[string]any{
				"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
				"capabilities": map[string]any{"drop": []any{"ALL"}},
			}, at(t, c, "securityContext"))
		}
	}
	dockerfile, err := os.ReadFile("../Dockerfile")
	require.NoError(t, err)
	for name, run := range trainings(t) {
		port := at(t, run.jobs, "replicatedJobs", 0, "template", "spec", "template", "spec", "containers", 0, "readinessProbe", "tcpSocket", "port")
		assert.Equal(t, 2, strings.Count(string(dockerfile), fmt.Sprintf("'Port %d'", port)), "%s: of ssh and of its server", name)
	}
	assert.Contains(t, string(dockerfile), "'HostKey "+sshPath+"/id_rsa'")

	k := kubeflow(t).objects
	runtime := k["TrainingRuntime"]
	assert.Equal(t, sshPath, at(t, runtime, "spec", "mlPolicy", "mpi", "sshAuthMountPath"))
	assert.Equal(t, "trainer", at(t, runtime, "spec", "template", "spec", "replicatedJobs", 1, "template", "metadata", "labels", "trainer.kubeflow.org/trainjob-ancestor-step"))
	assert.Equal(t, map[string]any{
		"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": at(t, runtime, "metadata", "name"),
	}, at(t, k["TrainJob"], "spec", "runtimeRef"))
}

func volume(t testing.TB, pod any, name string) any {
	for _, v := range at(t, pod, "volumes").([]any) {
		if at(t, v, "name") == name {
			return v
		}
	}
	require.Fail(t, "no volume "+name)
	return nil
}

// The launcher's script gives mpirun a command that the program takes, and resumes once there is
// a checkpoint.
func TestTrainingCommand(t *testing.T) {
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "mpirun"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o777))
	hosts := map[string]string{"jobset": ""}
	for _, job := range []string{"launcher", "node"} {
		set := at(t, build(t, "train/jobset").objects["JobSet"], "metadata", "name")
		hosts["jobset"] += fmt.Sprintf(",%s-%s-0-0.%s:1", set, job, set)
	}
	hosts["jobset"] = " --host " + hosts["jobset"][1:]
	for name, run := range trainings(t) {
		c := at(t, run.jobs, "replicatedJobs", 1, "template", "spec", "template", "spec", "containers", 0)
		require.Equal(t, []any{"sh", "-c"}, at(t, c, "command"))
		dir := t.TempDir()
		mpirun := func() string {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", at(t, c, "args", 0).(string))
			cmd.Dir, cmd.Env = dir, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			return strings.TrimSpace(string(out))
		}
		command := "--bind-to none" + hosts[name] + " lorafuse train /config/train.yaml"
		assert.Equal(t, command, mpirun())
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "output", "checkpoint-500"), 0o777))
		assert.Equal(t, command+" --resume", mpirun())

		_, words, _ := strings.Cut(mpirun(), " lorafuse ")
		var out, errs bytes.Buffer
		require.Equal(t, cli.ExitOK, cli.Run(t.Context(), append(strings.Fields(words), "--help"), strings.NewReader(""), &out, &errs), errs.String())
		assert.Contains(t, out.String(), "lorafuse train")
	}
}

// The configuration is valid, writes where the script looks for checkpoints, and has a
// micro-batch for each rank.
func TestTrainingConfig(t *testing.T) {
	k := kubeflow(t)
	files := k.settings["lorafuse-train"]
	require.Contains(t, files, "train.yaml")
	c, err := config.Parse("train.yaml", []byte(files["train.yaml"]))
	require.NoError(t, err)
	assert.Equal(t, "output", c.OutputDir)
	ranks := at(t, k.objects["TrainJob"], "spec", "trainer", "numNodes").(int) * at(t, k.objects["TrainingRuntime"], "spec", "mlPolicy", "mpi", "numProcPerNode").(int)
	assert.GreaterOrEqual(t, c.GradientAccumulationSteps, ranks)
}
