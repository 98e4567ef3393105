# terrace_test(<name> SOURCES a.cpp... [LIBS lib...] [LABELS label...] [TIMEOUT s])
# One GoogleTest binary that is one ctest entry. A binary that skips every one of its tests, visibly, counts as skipped:
# tests/support/main.cpp returns 77 then.
function(terrace_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${T_SOURCES} ${PROJECT_SOURCE_DIR}/tests/support/main.cpp)
  target_link_libraries(${name} PRIVATE ${T_LIBS} GTest::gmock GTest::gtest Threads::Threads)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE TERRACE_SHARED_DATA="${TERRACE_SHARED_DATA}"
                             TERRACE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  terrace_warnings(${name})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()
