#!/usr/bin/env bash
# Makes the goldens of this directory with YCSB 0.18.0-SNAPSHOT, compiled from
# its sources, and one with the published 0.17.0; see README.md.
#   generate.sh YCSB-SOURCE-DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
jars() { find ~/.m2 -name '*.jar' | grep -E "jackson|htrace|$1" | tr '\n' ':'; }
CP="$(jars HdrHistogram-2.1.12)$work"
javac -nowarn -d "$work" -cp "$CP" $(find "$1/core/src/main/java" -name '*.java') "$here"/java/*.java 2>/dev/null
cp "$1"/core/src/main/resources/* "$work"
java -cp "$CP" site.ycsb.Formats "$here"
run() {
  out=$1; shift
  java -cp "$CP" site.ycsb.Client -db MixedDB -P "$here/workload" "$@" 2>/dev/null >"$here/$out"
}
E='site.ycsb.measurements.exporter'
F='-p mixed.read=OK,NOT_FOUND,ERROR,OK -p mixed.update=ERROR,FORBIDDEN -p mixed.insert=BATCHED_OK,OK,SERVICE_UNAVAILABLE'
F="$F -p core_workload_insertion_retry_limit=0"
T='-p target=2000'
run default.txt -t
run load.txt -load
run verbose.txt -t -p measurement.histogram.verbose=true
run json.txt -t -p exporter=$E.JSONMeasurementsExporter
run json-array.txt -t -p exporter=$E.JSONArrayMeasurementsExporter
run failures.txt -t $F
run failures-json.txt -t $F -p exporter=$E.JSONMeasurementsExporter
run failures-each.txt -t $F -p reportlatencyforeacherror=true
run failures-tracked.txt -t $F -p latencytrackederrors=ERROR,NOT_FOUND
run verify.txt -t -p dataintegrity=true
run op-paced.txt -t $T -p measurement.interval=op
run both.txt -t -p measurement.interval=both
run both-paced.txt -t $T $F -p measurement.interval=both
run intended-paced.txt -t $T $F -p dataintegrity=true -p measurement.interval=intended
run percentiles.txt -t -p hdrhistogram.percentiles=1,2,3,11,12,13,21,22,50,90,99.9,99.99,100,0
run histogram.txt -t $F -p measurementtype=histogram
run histogram-verbose.txt -t -p measurementtype=histogram -p measurement.histogram.verbose=true -p histogram.buckets=5
run hdr-histogram.txt -t $F -p measurementtype=hdrhistogram+histogram -p measurement.interval=both
run timeseries.txt -t $F -p measurementtype=timeseries -p target=1000 -p timeseries.granularity=100
run raw.txt -t $F -p measurementtype=raw
run raw-no-summary.txt -t -p measurementtype=hdrhistogram+raw -p measurement.raw.no_summary=true
mkdir "$work/old"
CP="$(jars 'HdrHistogram-2.1.4|ycsb/core/0.17.0')$work/old"
javac -d "$work/old" -cp "$CP" "$here/java/MixedDB.java"
run published-0.17.0.txt -t $F -p hdrhistogram.percentiles=50,95,99
rm -r "$work"
