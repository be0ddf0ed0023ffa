package tinker

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lorafuse/lorafuse/internal/train/session"
)

// The numbers of fields are those of the client, which scripts/check_tinker.py has
// written, and compares with the client that is installed.
func TestFieldNumbers(t *testing.T) {
	raw, err := os.ReadFile("testdata/tinker_public.json")
	require.NoError(t, err)
	var client map[string]map[string]int
	require.NoError(t, json.Unmarshal(raw, &client))
	for name, number := range map[string]protowire.Number{
		"ForwardBackwardRequest.model_id": requestModelID, "ForwardBackwardRequest.seq_id": requestSeqID, "ForwardBackwardRequest.data": requestData,
		"ForwardBackwardRequest.loss_fn": requestLoss, "ForwardBackwardRequest.loss_fn_config": requestConfig,
		"ForwardBackwardRequest.forward_only": requestForwardOnly, "ForwardBackwardRequest.loss_fn_config_v2": requestConfigV2,
		"Datum.model_input": datumInput, "Datum.loss_fn_inputs": datumLosses,
		"Chunk.encoded_text": chunkText, "Chunk.image": chunkImage, "Chunk.dmel": chunkDmel, "EncodedTextChunk.tokens": textTokens,
		"LossConfigValue.number": valueNumber, "LossConfigValue.text": valueText,
		"Tensor.dense": tensorDense, "Tensor.sparse_csr": tensorSparse, "Tensor.dtype": tensorDType, "Tensor.shape": tensorShape,
		"SparseCsr.values": sparseValues, "SparseCsr.crow_indices": sparseRows, "SparseCsr.col_indices": sparseCols,
		"ForwardBackwardOutput.loss_fn_output_type": outputType, "ForwardBackwardOutput.loss_fn_outputs": outputRecords, "ForwardBackwardOutput.metrics": outputMetrics,
		"ArrayRecord.fields": recordFields, "ArrayRecord.num_datums": recordDatums,
		"BatchedTensor.data": batchedData, "BatchedTensor.offsets": batchedOffset, "BatchedTensor.dtype": batchedDType, "BatchedTensor.trailing_shape": batchedShape,
		"SampleResponse.sequences": sampleSequences, "SampleResponse.prompt_logprobs": samplePrompt, "SampleResponse.topk_prompt_logprobs": sampleTopPrompt, "SampleResponse.prompt_cache_hit_tokens": sampleCached,
		"SampledSequence.stop_reason": sequenceStop, "SampledSequence.tokens": sequenceTokens, "SampledSequence.logprobs": sequenceLogs, "SampledSequence.topk_sampled_logprobs": sequenceTop,
		"TopkLogprobs.token_ids": topTokens, "TopkLogprobs.logprobs": topLogprobs, "TopkLogprobs.k": topK, "TopkLogprobs.length": topLength,
		"DType.DTYPE_FLOAT32": protowire.Number(float32s), "DType.DTYPE_INT64": protowire.Number(int64s),
		"StopReason.STOP_REASON_STOP": stoppedByToken, "StopReason.STOP_REASON_LENGTH": stoppedByLength,
	} {
		message, field, _ := strings.Cut(name, ".")
		found, ok := client[message][field]
		if assert.True(t, ok, name) {
			assert.EqualValues(t, found, number, name)
		}
	}
}

// bodies are the protobuf bodies that clients have sent.
func bodies(t testing.TB) (all [][]byte) {
	files, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(t, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(raw)) {
			var v struct {
				Body struct {
					Proto string `json:"protobuf_base64"`
				}
			}
			if json.Unmarshal([]byte(line), &v) == nil && v.Body.Proto != "" {
				b, err := base64.StdEncoding.DecodeString(v.Body.Proto)
				require.NoError(t, err)
				all = append(all, b)
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

// What a client has sent is read to the values that its own text form of it has.
func TestParseRecorded(t *testing.T) {
	all := bodies(t)
	r, err := parseRequest(all[0])
	require.NoError(t, err)
	data, loss, err := r.batch()
	require.NoError(t, err)
	assert.Equal(t, "run-1", r.modelID)
	assert.EqualValues(t, 1, r.seqID)
	assert.False(t, r.forwardOnly)
	assert.Equal(t, session.Loss{Name: "cross_entropy"}, loss)
	require.Len(t, data, 2)
	assert.Equal(t, session.Datum{Tokens: []int32{1, 2, 3, 4}, Targets: []int32{2, 3, 4, 5}, Weights: []float32{0, 1, 1, 1}}, data[0])

	r, err = parseRequest(all[1])
	require.NoError(t, err)
	data, loss, err = r.batch()
	require.NoError(t, err)
	assert.Equal(t, session.Loss{Name: "ppo", Config: map[string]float64{"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}}, loss)
	assert.Equal(t, []float32{-1, -1, -1, -1}, data[0].Logprobs)
	assert.Equal(t, []float32{0, 1, 1, 1}, data[0].Advantages)

	r, err = parseRequest(all[2])
	require.NoError(t, err)
	assert.True(t, r.forwardOnly)
	for i, b := range all {
		r, err := parseRequest(b)
		require.NoError(t, err, i)
		data, _, err := r.batch()
		require.NoError(t, err, i)
		for _, d := range data {
			require.Len(t, d.Targets, len(d.Tokens), i)
		}
	}
}

// message is a message of fields, each a number and bytes, or a whole number.
func message(fields ...any) (b []byte) {
	for i := 0; i < len(fields); i += 2 {
		n := protowire.Number(fields[i].(int))
		switch v := fields[i+1].(type) {
		case []byte:
			b = appendBytes(b, n, v)
		case string:
			b = appendBytes(b, n, []byte(v))
		case int:
			b = appendNumber(b, n, uint64(v))
		case float64:
			b = protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), math.Float64bits(v))
		}
	}
	return b
}

func longs(v ...int64) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

// ints is a tensor of whole numbers, dense; a shape is packed or not.
func ints(shape []int, v ...int64) []byte {
	b := message(1, longs(v...), 3, 2)
	for i, d := range shape {
		if i == 0 && len(shape) == 1 {
			b = appendNumber(b, tensorShape, uint64(d))
			continue
		}
		b = appendBytes(b, tensorShape, protowire.AppendVarint(nil, uint64(d)))
	}
	return b
}

func reals(v ...float32) []byte { return message(1, appendFloats(nil, v), 3, 1) }

// csr is a sparse tensor of 3 rows.
func csr(kind int, values []byte, cols []int64, rows ...int64) []byte {
	return message(2, message(1, values, 2, longs(rows...), 3, longs(cols...)), 3, kind, 4, protowire.AppendVarint(protowire.AppendVarint(nil, 3), 2))
}

// datumOf is a request with one datum of three tokens.
func datumOf(inputs ...any) []byte {
	d := message(1, message(1, message(1, appendInts(nil, []int32{7, 8}))), 1, message(1, message(1, appendInts(nil, []int32{9}))), 3, message(1, message(1, "span", 3, 2)))
	for i := 0; i < len(inputs); i += 2 {
		d = appendBytes(d, datumLosses, message(1, inputs[i], 2, inputs[i+1]))
	}
	return message(1, "m", 2, 5, 3, d, 4, "cross_entropy", 99, "later")
}

func TestTensors(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		want session.Datum
	}{
		"one target, no shape":  {datumOf("target_tokens", ints(nil, 1, 2, 3)), session.Datum{Targets: []int32{1, 2, 3}}},
		"weights":               {datumOf("target_tokens", ints([]int{3}, 1, 2, 3), "weights", reals(0, -1, 0.5)), session.Datum{Targets: []int32{1, 2, 3}, Weights: []float32{0, -1, 0.5}}},
		"two targets":           {datumOf("target_tokens", ints([]int{3, 2}, 1, 2, 3, 4, 5, 6)), session.Datum{Targets: []int32{1, 2, 3, 4, 5, 6}, K: 2}},
		"sparse":                {datumOf("target_tokens", csr(2, longs(5, 6, 7), []int64{1, 0, 1}, 0, 1, 1, 3)), session.Datum{Targets: []int32{0, 5, 0, 0, 6, 7}, K: 2, Weights: []float32{0, 1, 0, 0, 1, 1}}},
		"sparse, with weights":  {datumOf("target_tokens", csr(2, longs(5), []int64{0}, 0, 0, 1, 1), "weights", csr(1, appendFloats(nil, []float32{0.25}), []int64{0}, 0, 0, 1, 1)), session.Datum{Targets: []int32{0, 0, 5, 0, 0, 0}, K: 2, Weights: []float32{0, 0, 0.25, 0, 0, 0}}},
		"the other way round":   {datumOf("clip_high_threshold", reals(1, 2, 3), "target_tokens", ints(nil, 1, 2, 3)), session.Datum{Targets: []int32{1, 2, 3}, ClipHigh: []float32{1, 2, 3}}},
		"a tensor given twice":  {datumOf("target_tokens", ints(nil, 4, 5, 6), "target_tokens", ints(nil, 1, 2, 3)), session.Datum{Targets: []int32{1, 2, 3}}},
		"a token with no other": {datumOf("target_tokens", ints([]int{3, 1}, 1, 2, 3)), session.Datum{Targets: []int32{1, 2, 3}, K: 1}},
	} {
		r, err := parseRequest(c.body)
		require.NoError(t, err, name)
		data, _, err := r.batch()
		require.NoError(t, err, name)
		c.want.Tokens = []int32{7, 8, 9}
		assert.Equal(t, []session.Datum{c.want}, data, name)
	}
}

// What makes no sense is refused by name; what is no message at all, before.
func TestRefusedData(t *testing.T) {
	target := ints(nil, 1, 2, 3)
	for name, c := range map[string]struct {
		body []byte
		kind error
		text string
	}{
		"no targets":           {datumOf(), ErrRequest, "target_tokens is missing"},
		"targets of floats":    {datumOf("target_tokens", reals(1, 2, 3)), ErrRequest, "target_tokens: wrong request: element type 1, expected int64"},
		"half an element":      {datumOf("target_tokens", message(1, "abc", 3, 2)), ErrRequest, "3 bytes"},
		"a wrong shape":        {datumOf("target_tokens", ints([]int{4}, 1, 2, 3)), ErrRequest, "expected a shape of [4]"},
		"a shape of too few":   {datumOf("target_tokens", ints([]int{2, 2}, 1, 2, 3, 4)), ErrRequest, "expected [3] or [3, K]"},
		"a huge shape":         {datumOf("target_tokens", message(2, message(1, "", 2, longs(0), 3, ""), 3, 2, 4, protowire.AppendVarint(protowire.AppendVarint(nil, 1<<40), 1<<40))), ErrRequest, "at most"},
		"a negative shape":     {datumOf("target_tokens", message(1, longs(1), 3, 2, 4, protowire.AppendVarint(nil, math.MaxUint64))), ErrRequest, "shape"},
		"too many weights":     {datumOf("target_tokens", target, "weights", reals(1, 2, 3, 4)), ErrRequest, "weights: found 4 numbers, expected 3"},
		"a name not known":     {datumOf("target_tokens", target, "weigths", reals(1, 2, 3)), ErrRequest, `did you mean "weights"`},
		"no token":             {datumOf("target_tokens", ints(nil, 1, 2, 1<<40)), ErrRequest, "expected a token"},
		"rows that go back":    {datumOf("target_tokens", csr(2, longs(5, 6), []int64{0, 0}, 0, 2, 1, 2)), ErrRequest, "crow_indices"},
		"rows that end early":  {datumOf("target_tokens", csr(2, longs(5, 6), []int64{0, 0}, 0, 1, 1, 1)), ErrRequest, "crow_indices"},
		"a column too far":     {datumOf("target_tokens", csr(2, longs(5), []int64{2}, 0, 0, 0, 1)), ErrRequest, "col_indices"},
		"a negative column":    {datumOf("target_tokens", csr(2, longs(5), []int64{-1}, 0, 0, 0, 1)), ErrRequest, "col_indices"},
		"too few columns":      {datumOf("target_tokens", csr(2, longs(5, 6), []int64{0}, 0, 0, 0, 2)), ErrRequest, "col_indices"},
		"an image":             {message(1, "m", 3, message(1, message(2, message(1, "png")))), ErrUnsupported, "images"},
		"a text in a setting":  {message(1, "m", 7, message(1, "mode", 2, message(2, "fast"))), ErrUnsupported, `"mode"`},
		"cut short":            {datumOf("target_tokens", target)[:40], errWire, ""},
		"a tag alone":          {[]byte{0xff}, errWire, ""},
		"a text as a number":   {message(1, 7), errWire, "model_id"},
		"a text that is none":  {message(1, "\xff"), errWire, "UTF-8"},
		"a number as a text":   {message(2, "x"), errWire, "seq_id"},
		"a datum as a number":  {message(3, 1), errWire, "data[0]"},
		"half a token":         {message(3, message(1, message(1, message(1, "abc")))), errWire, "3 bytes"},
		"a setting as a whole": {message(5, message(1, "beta", 2, 1)), errWire, "loss_fn_config"},
	} {
		r, err := parseRequest(c.body)
		if err == nil {
			_, _, err = r.batch()
		}
		require.ErrorIs(t, err, c.kind, name)
		assert.ErrorContains(t, err, c.text, name)
	}
}

// A value of version 2 is preferred, whichever comes first.
func TestConfigVersions(t *testing.T) {
	old, now := message(5, message(1, "beta", 2, 0.5)), message(7, message(1, "beta", 2, message(1, 0.25)))
	for _, b := range [][]byte{append(append([]byte{}, old...), now...), append(append([]byte{}, now...), old...)} {
		r, err := parseRequest(b)
		require.NoError(t, err)
		assert.Equal(t, map[string]float64{"beta": 0.25}, r.config)
	}
	r, err := parseRequest(old)
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"beta": 0.5}, r.config)
}

// fieldsOf are the fields of a message by their numbers, each as it stands.
func fieldsOf(t *testing.T, b []byte) map[protowire.Number][]fieldValue {
	all := map[protowire.Number][]fieldValue{}
	require.NoError(t, eachField(b, func(n protowire.Number, v fieldValue) error {
		all[n] = append(all[n], v)
		return nil
	}))
	return all
}

func TestAnswers(t *testing.T) {
	o := trained{logprobs: [][]float32{{-1, -2}, {-3}, {-4, -5, -6, -7}}, widths: []int{0, 0, 2}, metrics: map[string]float64{"loss:sum": 2.5}}
	f := fieldsOf(t, o.marshal())
	require.Len(t, f[outputRecords], 2, "a record for each width")
	first := fieldsOf(t, f[outputRecords][0].bytes)
	assert.EqualValues(t, 2, first[recordDatums][0].bits)
	entry := fieldsOf(t, first[recordFields][0].bytes)
	assert.Equal(t, "logprobs", string(entry[mapKey][0].bytes))
	tensor := fieldsOf(t, entry[mapValue][0].bytes)
	assert.Equal(t, appendFloats(nil, []float32{-1, -2, -3}), tensor[batchedData][0].bytes)
	assert.Equal(t, longs(0, 8, 12), tensor[batchedOffset][0].bytes, "in bytes")
	assert.EqualValues(t, float32s, tensor[batchedDType][0].bits)
	assert.Empty(t, tensor[batchedShape])
	second := fieldsOf(t, fieldsOf(t, fieldsOf(t, f[outputRecords][1].bytes)[recordFields][0].bytes)[mapValue][0].bytes)
	assert.Equal(t, []byte{2}, second[batchedShape][0].bytes)
	metric := fieldsOf(t, f[outputMetrics][0].bytes)
	assert.Equal(t, "loss:sum", string(metric[mapKey][0].bytes))
	assert.Equal(t, 2.5, math.Float64frombits(metric[mapValue][0].bits))

	s := sampled{
		sequences: []sequence{{stop: stoppedByLength, tokens: []int32{1, 2}, logprobs: []float32{-1, -2}, top: &top{k: 2, tokens: []int32{1, 3, 2, 0}, logprobs: []float32{-1, -3, -2, noLogprob}}}, {}},
		prompt:    []float32{float32(math.NaN()), -0.5}, cached: 7,
	}
	f = fieldsOf(t, s.marshal())
	require.Len(t, f[sampleSequences], 2)
	q := fieldsOf(t, f[sampleSequences][0].bytes)
	assert.EqualValues(t, 1, q[sequenceStop][0].bits)
	assert.Equal(t, appendInts(nil, []int32{1, 2}), q[sequenceTokens][0].bytes)
	assert.Equal(t, appendFloats(nil, []float32{-1, -2}), q[sequenceLogs][0].bytes)
	k := fieldsOf(t, q[sequenceTop][0].bytes)
	assert.EqualValues(t, 2, k[topK][0].bits)
	assert.EqualValues(t, 2, k[topLength][0].bits)
	assert.Len(t, k[topTokens][0].bytes, 16)
	assert.Len(t, f[samplePrompt][0].bytes, 8)
	assert.Empty(t, f[sampleTopPrompt])
	assert.EqualValues(t, 7, f[sampleCached][0].bits)
}

// Whatever comes is read, or refused; and what is read can be trained on.
func FuzzRequest(f *testing.F) {
	for _, b := range bodies(f) {
		f.Add(b)
	}
	f.Add(datumOf("target_tokens", csr(2, longs(5, 6, 7), []int64{1, 0, 1}, 0, 1, 1, 3)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if err != nil {
			require.ErrorIs(t, err, errWire)
			return
		}
		data, _, err := r.batch()
		if err != nil {
			return
		}
		for _, d := range data {
			require.Len(t, d.Targets, len(d.Tokens)*max(1, d.K))
			for _, x := range [][]float32{d.Weights, d.Logprobs, d.Advantages, d.ClipLow, d.ClipHigh} {
				require.True(t, x == nil || len(x) == len(d.Targets))
			}
		}
	})
}
