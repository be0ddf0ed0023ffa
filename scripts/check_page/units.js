// The functions of the page that need no page, with values: gives a list of faults.
async (folder) => {
  const { EventReader } = await import(folder + 'sse.js');
  const { parse, find, total } = await import(folder + 'prometheus.js');
  const { ticks, thin } = await import(folder + 'chart.js');
  const { rows } = await import(folder + 'start.js');
  const { short, bytes, plural } = await import(folder + 'dom.js');
  const faults = [];
  const same = (name, got, want) => {
    if (JSON.stringify(got) !== JSON.stringify(want)) faults.push(`${name}: found ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`);
  };

  // Events do not depend on where the bytes are cut.
  const stream = ': ping\n\ndata: {"a":"ä🙂"}\n\ndata:x\r\n\r\nevent: y\rdata: one\rdata: two\r\rdata: 3\r\ndata: 4\r\n\r\ndata\n\nid: 1\n\ndata:  z\n\ndata: [DONE]\n\ndata: cut';
  const want = ['{"a":"ä🙂"}', 'x', 'one\ntwo', '3\n4', '', ' z', '[DONE]'];
  const raw = new TextEncoder().encode(stream);
  for (let i = 0; i <= raw.length; i++) {
    for (let j = i; j <= raw.length; j += 7) {
      const reader = new EventReader(), decoder = new TextDecoder();
      const got = [raw.slice(0, i), raw.slice(i, j), raw.slice(j)].flatMap((piece) => reader.push(decoder.decode(piece, { stream: true })));
      if (JSON.stringify(got) !== JSON.stringify(want)) faults.push(`cut at ${i} and ${j}: ${JSON.stringify(got)}`);
    }
  }
  const reader = new EventReader();
  same('one by one', [...stream].flatMap((c) => reader.push(c)), want);

  const metrics = parse('# HELP a b\n# TYPE a counter\na 1\nvllm:b{x="1",y="a,b\\"c\\\\d\\n{}"} 2.5e3 1700000000000\n\nc{le="+Inf"} +Inf\nd NaN\nbroken{\n e 1');
  same('names', metrics.map((m) => m.name), ['a', 'vllm:b', 'c', 'd', 'e']);
  same('value', find(metrics, 'vllm:b').value, 2500);
  same('labels', find(metrics, 'vllm:b').labels, { x: '1', y: 'a,b"c\\d\n{}' });
  same('infinite', find(metrics, 'c').value === Infinity && Number.isNaN(find(metrics, 'd').value), true);
  same('total', [total(parse('a{x="1"} 1\na{x="2"} 2\nb 4'), 'a'), Number.isNaN(total(metrics, 'f'))], [3, true]);
  same('not there', find(metrics, 'f'), undefined);

  same('ticks', ticks(0, 100, 5), [0, 20, 40, 60, 80, 100]);
  same('ticks of a loss', ticks(2.81, 3.9, 5), [3, 3.2, 3.4, 3.6, 3.8]);
  same('ticks that are small', ticks(0, 0.3, 3), [0, 0.1, 0.2, 0.3]);
  same('ticks of one value', ticks(2, 2, 5), [2]);
  same('ticks below zero', ticks(-1, 1, 4), [-1, -0.5, 0, 0.5, 1]);
  same('thin', thin([...Array(1001).keys()], 5), [0, 250, 500, 750, 1000]);
  same('not thin', thin([1, 2], 5), [1, 2]);

  same('rows', rows('{"a":1}\n\n{"a":2}\n', true), { found: 2 });
  same('rows that are cut', rows('{"a":1}\n{"a":', false), { found: 1 });
  same('a wrong row', rows('{"a":1}\n{"a"\n', true), { wrong: 'Line 2 is not JSON.' });
  same('a list', rows('[1]\n', true), { wrong: 'Line 1 is no JSON object.' });
  same('no rows', rows('\n', true), { wrong: 'There are no rows.' });

  same('numbers', [0, 1.23456, 23.456, 456.7, 0.01234, 12345678, NaN].map(short), ['0', '1.23', '23.5', '457', '0.012', '1.23e+7', '–']);
  same('bytes', [0, 1023, 1024, 5 * 1024 ** 3].map(bytes), ['0 B', '1023 B', '1.0 KiB', '5.0 GiB']);
  same('plural', [plural(1, 'token'), plural(1200, 'token')], ['1 token', '1,200 tokens']);
  return faults;
};
